"""`python -m benchmarks`: every server in turn on the same work, then a table, a chart and the targets."""

import argparse
import asyncio
import datetime
import signal
from dataclasses import replace
from pathlib import Path

import proxy_inference_engine
from benchmarks.report import machine, markdown
from benchmarks.report.results import Run, ServerResult
from benchmarks.servers.client import RequestFailed
from benchmarks.servers.environments import ROOT, NotInstalled
from benchmarks.servers.models import Models, find_models, make_checkpoint
from benchmarks.servers.peers import LLAMA_CPP_PYTHON, Peer, all_peers
from benchmarks.servers.process import NotStarted
from benchmarks.servers.shapes import SHAPES
from benchmarks.work.measurement import Job, Measured, measure
from benchmarks.work.prompts import Prompts
from benchmarks.work.quiet import Patience
from benchmarks.work.workloads import QUICK, Plan
from proxy_inference_engine.config import available_cores

_RESULTS = ROOT / "benchmarks" / "results"
_QUICK_RESULTS = ROOT / ".cache" / "benchmarks"


def main() -> None:
    options = _options()
    results = _QUICK_RESULTS if options.quick else _RESULTS
    folder = options.out or (results / options.shape if options.shape else results)
    run = Run.read(folder / "latest.json") if options.render else asyncio.run(_until_stopped(options, folder))
    markdown.write(run, folder)
    print("\n" + markdown.render(run))
    print(f"written to {folder}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; written to .cache/benchmarks")
    parser.add_argument("--rounds", type=int, help="times every server is measured (default 2, quick 1)")
    parser.add_argument(
        "--shape", choices=sorted(SHAPES), help="random weights in this shape instead of the bundled model"
    )
    parser.add_argument("--only", help="servers, separated by commas: pie,llama-server,…")
    parser.add_argument(
        "--patience", type=float, default=900, help="seconds spent on waiting for quiet and on repeating (default 900)"
    )
    parser.add_argument(
        "--no-chat", action="store_true", help="without conversations, which take the slowest servers an hour"
    )
    parser.add_argument("--out", type=Path, help="folder for the results")
    parser.add_argument("--render", action="store_true", help="draw the report again from latest.json")
    return parser.parse_args()


async def _until_stopped(options: argparse.Namespace, folder: Path) -> Run:
    """A SIGTERM ends the run the way Ctrl-C does: the server that runs is stopped too."""
    task = asyncio.create_task(_run(options, folder))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


async def _run(options: argparse.Namespace, folder: Path) -> Run:
    threads = available_cores()
    models = find_models(threads, _say, options.shape)
    peers = all_peers(models, threads)
    if options.only:
        peers = [peer for peer in peers if peer.key in options.only.split(",")]
    num_rounds = options.rounds or (1 if options.quick else 2)
    run = Run(
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        commit=machine.commit(),
        is_quick=options.quick,
        machine=machine.describe(),
        num_rounds=num_rounds,
        servers=[_result(peer) for peer in peers],
    )
    for peer, result in zip(peers, run.servers, strict=True):
        result.reason = _install(peer, models)
    plan = QUICK if options.quick else Plan()
    if options.no_chat:
        plan = replace(plan, chat=0)
    prompts = Prompts(models.vocabulary.encode)
    patience = Patience(options.patience, run.others)
    for number in range(num_rounds):
        job = Job(prompts, models, plan, f"{run.started} {number}", patience, say=_say)
        pairs = list(zip(peers, run.servers, strict=True))
        # The second round goes backwards: whoever came after a hot machine comes before it now.
        for peer, result in pairs if number % 2 == 0 else reversed(pairs):
            if result.reason is None:
                _say(f"round {number + 1} of {num_rounds}: {peer.title}")
                await _measure(peer, result, job, run)
                markdown.write(run, folder)
    return run


async def _measure(peer: Peer, result: ServerResult, job: Job, run: Run) -> None:
    try:
        measured: Measured = await measure(peer, job)
    except (NotStarted, RequestFailed, OSError) as error:
        result.reason = str(error)
        _say(f"  {peer.key}: {error}")
        return
    result.rounds.append(measured.samples)
    result.failures |= measured.failures
    run.overheads += measured.overheads
    if measured.memory is not None:
        run.memory.append(measured.memory)


def _install(peer: Peer, models: Models) -> str | None:
    """None when the server is there; otherwise why not."""
    try:
        if peer.environment is not None:
            peer.environment.install(_say)
        if peer.needs_checkpoint:
            make_checkpoint(models, _say)
    except NotInstalled as error:
        _say(f"  {peer.key} is not measured: {error}")
        return str(error)
    return None


def _result(peer: Peer) -> ServerResult:
    ours = (f"pie {proxy_inference_engine.__version__}", LLAMA_CPP_PYTHON)
    environment = peer.environment
    parts = ours if environment is None else (environment.source,) if environment.source else environment.requirements
    return ServerResult(peer.key, peer.title, peer.weights, peer.settings, ", ".join(parts))


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
