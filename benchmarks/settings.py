"""Settings of llama.cpp's server side by side, to choose those in `servers/peers.py`: `python -m benchmarks.settings`.

A short round of every workload for each, on the given file.
"""

import argparse
import asyncio
import datetime
from dataclasses import replace

from benchmarks.report.samples import FIGURES, median
from benchmarks.servers.environments import NotInstalled
from benchmarks.servers.models import Models, find_models
from benchmarks.servers.peers import Peer, all_peers, native_options
from benchmarks.servers.process import NotStarted
from benchmarks.work.measurement import Job, measure
from benchmarks.work.prompts import Prompts
from benchmarks.work.quiet import Patience
from benchmarks.work.workloads import QUICK
from proxy_inference_engine.config import available_cores

_KEYS = ("decode", "cold_ttft", "wide", "wide_gap_p99", "chat_ttft_p50", "turns_ttft_p50")
_PATIENCE_SECONDS = 600


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m benchmarks.settings", description="Settings of llama.cpp's server side by side."
    ).parse_args()
    threads = available_cores()
    models = find_models(threads, print)
    peer = next(peer for peer in all_peers(models, threads) if peer.key == "llama-server")
    variants = {
        "separate streams, flash attention": native_options(threads),
        "separate streams, no flash attention": native_options(threads, flash="off"),
        "unified, flash attention": native_options(threads, is_unified=True),
        "unified, no flash attention": native_options(threads, is_unified=True, flash="off"),
        "separate streams, flash attention, ubatch 128": native_options(threads, ubatch=128),
    }
    figures = [figure for figure in FIGURES if figure.key in _KEYS]
    print(f"{'':<48}" + "".join(f"{figure.key + ' ' + figure.unit:>20}" for figure in figures))
    for title, options in variants.items():
        print(f"{title:<48}" + asyncio.run(_row(models, _with(peer, options))), flush=True)


async def _row(models: Models, peer: Peer) -> str:
    seed = datetime.datetime.now(datetime.UTC).isoformat()
    prompts, patience = Prompts(models.vocabulary.encode), Patience(_PATIENCE_SECONDS)
    try:
        assert peer.environment is not None
        peer.environment.install(print)
        measured = await measure(peer, Job(prompts, models, QUICK, seed, patience, say=lambda _line: None))
    except (NotInstalled, NotStarted) as error:
        return f"  {error}"
    cells = []
    for figure in FIGURES:
        if figure.key in _KEYS:
            value = median([measured.samples], figure.key)
            cells.append("–" if value is None else figure.format(value))
    return "".join(f"{cell:>20}" for cell in cells)


def _with(peer: Peer, options: list[str]) -> Peer:
    """The same server with other options: they stand last in its command."""
    num_options = len(native_options(available_cores()))
    return replace(peer, command=lambda port: [*peer.command(port)[:-num_options], *options])


if __name__ == "__main__":
    main()
