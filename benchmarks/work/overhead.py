"""What our engine does beside computing the model, from its own counters while streams run.

Two shares: of the steps' own time, and of the whole time between two steps (reading the inbox, handing out, waiting
for the interpreter). The second includes the first.
"""

import asyncio
import time
from dataclasses import dataclass

from benchmarks.servers.client import Target, Watch
from benchmarks.work.prompts import Prompts
from benchmarks.work.workloads import NUM_STREAMS

_NUM_TOKENS = 320
_FIRST_READS = 12  # the prompts are computed by then
_LAST_READS = 220  # fewer than tokens: a read may bring two
_SAMPLINGS: dict[str, dict[str, object]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 1.0, "top_p": 0.9, "seed": 1},
}
CASES = tuple((sampling, num_streams) for sampling in _SAMPLINGS for num_streams in (1, NUM_STREAMS))


@dataclass(frozen=True, slots=True)
class Overhead:
    """One measurement over steady decoding."""

    sampling: str
    num_streams: int
    step_share: float  # of the steps' time, outside the forward pass
    loop_share: float  # of all time, outside the forward pass
    step_ms: float
    num_steps: int


@dataclass(frozen=True, slots=True)
class _Reading:
    at_s: float
    steps: float
    step_s: float
    forward_s: float


async def measure(target: Target, prompts: Prompts, case: tuple[str, int], seed: str) -> Overhead:
    sampling, num_streams = case
    watches = [Watch() for _ in range(num_streams)]
    streams = [
        asyncio.create_task(
            target.stream(
                "/v1/completions",
                {
                    "prompt": prompts.text(f"{seed} {case} {number}", 24),
                    "max_tokens": _NUM_TOKENS,
                    **_SAMPLINGS[sampling],
                },
                watch,
            )
        )
        for number, watch in enumerate(watches)
    ]
    await _reach(watches, _FIRST_READS)
    before = await _read(target)
    await _reach(watches, _LAST_READS)
    after = await _read(target)
    await asyncio.gather(*streams)
    forward = after.forward_s - before.forward_s
    steps = after.steps - before.steps
    return Overhead(
        sampling=sampling,
        num_streams=num_streams,
        step_share=1 - forward / (after.step_s - before.step_s),
        loop_share=1 - forward / (after.at_s - before.at_s),
        step_ms=1000 * (after.at_s - before.at_s) / steps,
        num_steps=int(steps),
    )


async def _reach(watches: list[Watch], num_reads: int) -> None:
    """Wait until every stream has brought so much."""
    deadline = time.monotonic() + 120
    while min(watch.num_reads for watch in watches) < num_reads:
        if time.monotonic() > deadline:
            raise TimeoutError(f"streams stopped before {num_reads} tokens")
        await asyncio.sleep(0.01)


async def _read(target: Target) -> _Reading:
    text = (await target.get("/metrics")).decode()
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    values = {name.partition("{")[0]: value for name, value in lines}  # one model: its label says nothing
    return _Reading(
        at_s=time.perf_counter(),
        steps=float(values["pie_steps_total"]),
        step_s=float(values["pie_step_seconds_total"]),
        forward_s=float(values["pie_forward_seconds_total"]),
    )
