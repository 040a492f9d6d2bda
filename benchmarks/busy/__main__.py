"""`python -m benchmarks.busy`: how fast the bundled model is while other programs want the cores.

With none, one and two busy loops beside it, and how soon it is as quick as before when one ends: one stream, 16
streams, and prompts of 500 tokens. The speeds twice in the same minutes: with threads that follow the free cores, and
with a fixed number of them, as llama.cpp's own server has. Nothing else should run. Written to results/busy.json, drawn
as results/busy.svg.
"""

import argparse
import datetime
import os
import statistics

from benchmarks.busy.measurement import figures, recovery_s
from benchmarks.busy.picture import draw
from benchmarks.busy.results import WORK, Busy, Figure
from benchmarks.report import machine
from benchmarks.servers.environments import ROOT
from proxy_inference_engine.config import Config, available_cores
from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from proxy_inference_engine.runners.llama_cpp.weights import fastest_weights

_RESULTS = ROOT / "benchmarks" / "results"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.busy", description="Speed beside other programs.")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (default 4)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--render", action="store_true", help="draw again from results/busy.json")
    options = parser.parse_args()
    stored = _RESULTS / "busy.json"
    found = Busy.read(stored) if options.render else measured(options.seconds, options.rounds)
    found.write(stored)
    (_RESULTS / "busy.svg").write_text(draw(found), encoding="utf-8")
    print(f"\n{found.num_threads} threads on {os.cpu_count()} processors\n\n{found.table()}\n\nwritten to {_RESULTS}")


def measured(seconds: float, rounds: int) -> Busy:
    threads = available_cores()
    path = fastest_weights(resolve(None).path, cache_dir=Config().cache_dir, threads=threads, report=print)
    runner = LlamaRunner(Model(path), Settings("busy", (Lane(16, 1024),), threads))
    found: list[Figure] = []
    for figure in figures(runner, seconds, rounds):
        found.append(figure)
        kind = "follow" if figure.is_following else "fixed"
        print(f"{figure.num_busy} busy, {kind}, {figure.work}: {figure.speed:,.0f}", flush=True)
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    results = Busy(day, machine.commit(), machine.describe(), threads, found, {})
    for work in WORK:
        seconds_each = [recovery_s(runner, work, results.speed(work, 0, is_following=True)) for _ in range(rounds)]
        results.recoveries_s[work] = round(statistics.median(seconds_each), 2)
    runner.close()
    return results


if __name__ == "__main__":
    main()
