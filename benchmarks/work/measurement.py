"""One server in one round: start it, give it every workload, weigh it, stop it."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.report.results import Memory
from benchmarks.report.samples import Samples
from benchmarks.servers.client import RequestFailed, Target
from benchmarks.servers.environments import PEERS
from benchmarks.servers.models import Models
from benchmarks.servers.peers import Peer
from benchmarks.servers.process import Running, running
from benchmarks.work import overhead
from benchmarks.work.overhead import Overhead
from benchmarks.work.prompts import Prompts
from benchmarks.work.quiet import Patience
from benchmarks.work.workloads import Plan, Workloads

_SETTLE_SECONDS = 3.0  # servers make memory present in the background after their start
_SLOTS = re.compile(r"(\d+) sequences of ([\d,]+) tokens")  # as our server prints them


@dataclass(frozen=True, slots=True)
class Job:
    """What every server of a round is given."""

    prompts: Prompts
    models: Models
    plan: Plan
    seed: str
    patience: Patience
    say: Callable[[str], None]


@dataclass(slots=True)
class Measured:
    """What was measured of one server in one round."""

    samples: Samples = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    overheads: list[Overhead] = field(default_factory=list)
    memory: Memory | None = None


async def measure(peer: Peer, job: Job) -> Measured:
    """Start a server and give it every workload. Raises NotStarted."""
    measured = Measured()
    log = PEERS / f"{peer.key}.log"
    async with running(peer, log) as server:
        measured.samples["start"] = [server.start_s]
        work = Workloads(server.target, job.prompts, job.seed, job.plan.num_turns)
        await work.warm_up()
        await asyncio.sleep(_SETTLE_SECONDS)
        for name, once, num_repeats in (
            ("decode", work.decode, job.plan.decode),
            ("cold", work.cold, job.plan.cold),
            ("wide", work.wide, job.plan.wide),
            ("turns", work.turns, job.plan.chat),
            ("chat", work.chat, job.plan.chat),
        ):
            job.say(f"  {peer.key}: {name}")
            try:
                await _repeat(measured.samples, once, num_repeats, job.patience, server.pid)
            except (RequestFailed, OSError) as error:  # a workload that fails leaves the others alone
                measured.failures[name] = str(error) or type(error).__name__
        measured.samples["resident"] = [float(server.resident_bytes)]
        if peer.environment is None:
            await _look_inside(measured, server, job, log)
    return measured


async def _repeat(
    samples: Samples,
    once: Callable[[str], Awaitable[dict[str, float]]],
    num_repeats: int,
    patience: Patience,
    pid: int,
) -> None:
    for repeat in range(num_repeats):
        figures = await patience.measure(pid, once, str(repeat))
        for key, value in figures.items():
            samples.setdefault(key, []).append(value)


async def _look_inside(measured: Measured, server: Running, job: Job, log: Path) -> None:
    """Read our server's own counters, which no other server has."""
    job.say("  pie: time outside the forward pass")
    try:
        gauges = await _gauges(server.target)
        # The workloads stay within the slots that exist from the start; longer ones would be made on demand.
        slots = _SLOTS.search(log.read_text(errors="replace"))
        token_bytes = gauges["pie_cached_bytes"] / gauges["pie_cached_tokens"]
        measured.memory = Memory(
            resident_bytes=server.resident_bytes,
            weight_bytes=job.models.converted.stat().st_size,
            kv_bytes=int(int(slots[1]) * int(slots[2].replace(",", "")) * token_bytes) if slots else None,
            cache_bytes=int(gauges["pie_cached_bytes"]),
            max_cache_bytes=int(gauges["pie_cached_bytes_limit"]),
        )
        for case in overhead.CASES:
            once = partial(overhead.measure, server.target, job.prompts, case)
            measured.overheads.append(await job.patience.measure(server.pid, once, job.seed))
    except (RequestFailed, OSError, KeyError, ZeroDivisionError) as error:
        measured.failures["overhead"] = str(error) or type(error).__name__


async def _gauges(target: Target) -> dict[str, float]:
    lines = (await target.get("/metrics")).decode().splitlines()
    named = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    pairs = ((name.partition("{")[0], value) for name, value in named)  # one model: its label says nothing
    return {name: float(value) for name, value in pairs}
