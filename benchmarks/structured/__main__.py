"""`python -m benchmarks.structured`: JSON and tool calls beside llama.cpp's own server, and what grammars cost.

With PIE_SCHEMA_SAMPLE naming a file of schemas, as `pie schema --bulk` reads them, their costs are measured too.
"""

import argparse
import asyncio
import datetime
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import proxy_inference_engine
from benchmarks.report import machine
from benchmarks.report.results import Run, ServerResult
from benchmarks.report.samples import Samples
from benchmarks.servers.client import RequestFailed
from benchmarks.servers.environments import PEERS, ROOT, NotInstalled
from benchmarks.servers.models import Models, find_models
from benchmarks.servers.peers import LLAMA_CPP_PYTHON, Peer, all_peers
from benchmarks.servers.process import NotStarted, running
from benchmarks.structured import markdown
from benchmarks.structured.masks import Schema, measure_costs, own_schemas, sample_schemas
from benchmarks.structured.objects import Objects, Tally, objects_of
from benchmarks.structured.shares import BATCHES, Shares
from benchmarks.structured.targets import SERVERS, StructuredRun
from benchmarks.work.prompts import Prompts
from benchmarks.work.quiet import Patience
from proxy_inference_engine.config import available_cores

_PARTS = ("servers", "costs", "shares")
_SETTLE_SECONDS = 3.0
_THIS_PROCESS = -1  # no server is measured: what this process uses is counted anyway

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything."""

    rounds: int = 3
    repeats: int = 3  # of each workload in a round
    compilations: int = 5  # of each schema
    sampled_schemas: int | None = None  # at most; None: all
    steps: int = 600  # that count for a share


QUICK = Plan(rounds=1, repeats=1, compilations=1, sampled_schemas=60, steps=60)


def main() -> None:
    options = _options()
    name = ".cache/benchmarks" if options.quick else "benchmarks/results"
    folder = options.out or ROOT / name
    done = asyncio.run(_run(options, folder))
    print("\n" + markdown.render(done))
    print(f"written to {folder}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.structured", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; written to .cache/benchmarks")
    parser.add_argument("--rounds", type=int, help="times every server is measured (default 3, quick 1)")
    parser.add_argument("--only", default=",".join(_PARTS), help=f"parts, separated by commas: {','.join(_PARTS)}")
    parser.add_argument(
        "--patience", type=float, default=900, help="seconds spent on waiting for quiet and on repeating (default 900)"
    )
    parser.add_argument("--out", type=Path, help="folder for the results")
    return parser.parse_args()


async def _run(options: argparse.Namespace, folder: Path) -> StructuredRun:
    threads, parts = available_cores(), options.only.split(",")
    plan = QUICK if options.quick else Plan()
    plan = replace(plan, rounds=options.rounds or plan.rounds)
    models = find_models(threads, _say)
    # A grammar has to be free to end its answer.
    peers = [replace(peer, fields={}) for peer in all_peers(models, threads) if peer.key in SERVERS]
    done = StructuredRun(
        Run(
            started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            commit=machine.commit(),
            is_quick=options.quick,
            machine=machine.describe(),
            num_rounds=plan.rounds,
            servers=[_result(peer) for peer in peers],
        )
    )
    patience = Patience(options.patience, done.run.others)
    if "servers" in parts:
        await _until_stopped(_measure_servers(done, peers, Job(models, plan, patience, folder)))
    else:
        for server in done.run.servers:
            server.reason = "not asked for"
    if "costs" in parts:
        await _measure_costs(done, plan, patience)
    if "shares" in parts:
        await _measure_shares(done, models, plan, patience)
    markdown.write(done, folder)
    return done


async def _until_stopped(work: Coroutine[None, None, None]) -> None:
    """While servers run a SIGTERM ends it the way Ctrl-C does, so that they are stopped too."""
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work)
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await task
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Job:
    models: Models
    plan: Plan
    patience: Patience
    folder: Path


async def _measure_servers(done: StructuredRun, peers: list[Peer], job: Job) -> None:
    """Round after round, in each every server once: a slow minute of the machine hits one round of one."""
    for peer, result in zip(peers, done.run.servers, strict=True):
        result.reason = _install(peer)
    for number in range(job.plan.rounds):
        for peer, result in zip(peers, done.run.servers, strict=True):
            if result.reason is not None:
                continue
            _say(f"round {number + 1} of {job.plan.rounds}: {peer.title}")
            try:
                await _measure_server(peer, result, job, f"{done.run.started} {number}", done.tallies)
            except (NotStarted, OSError) as error:
                result.reason = str(error)
                _say(f"  {peer.key}: {error}")
            markdown.write(done, job.folder)


async def _measure_server(peer: Peer, result: ServerResult, job: Job, seed: str, tallies: dict[str, Tally]) -> None:
    prompts = Prompts(job.models.vocabulary.encode)
    async with running(peer, PEERS / f"{peer.key}.structured.log") as server:
        with objects_of(server.target, prompts, seed, tallies.setdefault(peer.key, Tally())) as work:
            _say(f"  {peer.key}: warming up")
            await work.warm_up()
            await asyncio.sleep(_SETTLE_SECONDS)
            result.rounds.append(await _round(work, server.pid, result, job))


async def _round(work: Objects, pid: int, result: ServerResult, job: Job) -> Samples:
    samples: Samples = {}
    workloads = {"objects": work.objects, "8 at once": work.together, "tool calls": work.calls}
    for name, once in workloads.items():
        try:
            for repeat in range(job.plan.repeats):
                _say(f"  {result.key}: {name}, {repeat + 1} of {job.plan.repeats}")
                for key, value in (await job.patience.measure(pid, once, str(repeat))).items():
                    samples.setdefault(key, []).append(value)
        except RequestFailed as error:  # a workload that fails leaves the others alone
            result.failures[name] = str(error)
            _say(f"  {result.key}: {name}: {error}")
    return samples


async def _measure_costs(done: StructuredRun, plan: Plan, patience: Patience) -> None:
    sets: list[tuple[str, list[Schema], int]] = [("our own", own_schemas(), plan.compilations)]
    path = os.environ.get("PIE_SCHEMA_SAMPLE")
    if path:
        sets.append((Path(path).name, sample_schemas(Path(path), plan.sampled_schemas), 1))
    for name, schemas, num_repeats in sets:
        _say(f"costs of {len(schemas)} schemas: {name}")
        done.costs.append(await _quietly(patience, partial(measure_costs, name, schemas, num_repeats)))


async def _measure_shares(done: StructuredRun, models: Models, plan: Plan, patience: Patience) -> None:
    shares = Shares(models, available_cores())
    for num_streams in BATCHES:
        _say(f"share of a step, {num_streams} streams: {plan.steps} steps")
        done.shares.append(await _quietly(patience, partial(shares.measure, done.run.started, num_streams, plan.steps)))


async def _quietly(patience: Patience, work: Callable[[], T]) -> T:
    async def once(_name: str) -> T:
        return work()

    return await patience.measure(_THIS_PROCESS, once, "")


def _install(peer: Peer) -> str | None:
    """None when the server is there; otherwise why not."""
    try:
        if peer.environment is not None:
            peer.environment.install(_say)
    except NotInstalled as error:
        _say(f"  {peer.key} is not measured: {error}")
        return str(error)
    return None


def _result(peer: Peer) -> ServerResult:
    ours = f"pie {proxy_inference_engine.__version__}, {LLAMA_CPP_PYTHON}"
    versions = ours if peer.environment is None else peer.environment.source or ""
    return ServerResult(peer.key, peer.title, peer.weights, peer.settings, versions)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
