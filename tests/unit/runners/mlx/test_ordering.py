"""What the host waits for where a device chooses: a pass is ordered before the tokens of the one before are read, and
logits never leave the device, grammars and jumps included.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.formats import by_name
from proxy_inference_engine.runners.base import Lane, Logits, Row, TokenIds
from proxy_inference_engine.runners.mlx.chooser import DevicePicks
from proxy_inference_engine.runners.mlx.logits import LazyLogits
from proxy_inference_engine.runners.mlx.runner import MlxRunner
from proxy_inference_engine.state_machine.demand import Demand, JsonSchema
from proxy_inference_engine.state_machine.machine import MachineBuilder
from proxy_inference_engine.types import Constraint, Failed, Finished, Limits, Request, Sampling
from tests.tiny.runners import make_runner

SCHEMA = {
    "type": "object",
    "properties": {"title_of_it": {"type": "string", "minLength": 6, "maxLength": 6}, "is_new": {"type": "boolean"}},
    "required": ["title_of_it", "is_new"],
    "additionalProperties": False,
}


@pytest.fixture(params=["llama", "lfm2"])
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlxRunner]:
    runner = make_runner(request.param, tmp_path_factory.getbasetemp(), lanes=[Lane(4, 256)], defers=True)
    yield runner
    runner.close()


def constraint(runner: MlxRunner) -> Constraint:
    builder = MachineBuilder(by_name("qwen3"), runner.tokenizer, tracks_states=True)
    found = builder.build(Demand(output=JsonSchema(SCHEMA), can_reason=False)).constraint
    assert found is not None
    return found


def make_requests(runner: MlxRunner) -> list[Request]:
    """Greedy, drawn, biased, and bound by a grammar that forces some of its tokens."""
    samplings = [
        Sampling(seed=1, temperature=0.0),
        Sampling(seed=2, temperature=0.9, top_p=0.8, top_k=40, min_p=0.01),
        Sampling(seed=3, temperature=1.0, logit_bias={40: 5.0}),
    ]
    requests = [
        Request(f"r{index}", "t", tuple(range(20 + index, 60)), sampling, Limits(12, ignore_eos=True))
        for index, sampling in enumerate(samplings)
    ]
    bound = Request("bound", "t", tuple(range(30, 50)), samplings[1], Limits(80), constraint=constraint(runner))
    return [*requests, bound]


def finish(engine: StepEngine, requests: Sequence[Request]) -> int:
    """How many end well."""
    for request in requests:
        engine.add(request)
    outputs = []
    while engine.has_work:
        outputs += [output for _, _, output in engine.step()]
    assert not any(isinstance(output, Failed) for output in outputs)
    return sum(isinstance(output, Finished) for output in outputs)


def test_logits_stay_on_the_device(runner: MlxRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    read = LazyLogits.__array__
    num_read = 0

    def count(self: LazyLogits, *words: Any, **more: Any) -> Any:
        nonlocal num_read
        num_read += 1
        return read(self, *words, **more)

    monkeypatch.setattr(LazyLogits, "__array__", count)
    engine = StepEngine(runner, max_cache_bytes=8 << 20)
    assert finish(engine, make_requests(runner)) == 4 and num_read == 0
    scored = Request("s", "t", (20, 21), Sampling(seed=1), Limits(3, ignore_eos=True), num_top_logprobs=1)
    assert finish(engine, [scored]) == 1 and num_read > 0


@pytest.mark.parametrize("name", ["r0", "r1", "bound"])
def test_a_pass_is_ordered_before_the_last_tokens_are_read(
    runner: MlxRunner, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    forward, read = runner.forward, DevicePicks.read

    def forwarded(rows: Sequence[Row]) -> list[Logits]:
        events.append("tokens that nobody has read" if any(row.unread is not None for row in rows) else "known tokens")
        return forward(rows)

    def was_read(self: DevicePicks) -> TokenIds:
        events.append("read")
        return read(self)

    monkeypatch.setattr(runner, "forward", forwarded)
    monkeypatch.setattr(DevicePicks, "read", was_read)
    [request] = [each for each in make_requests(runner) if each.id == name]
    assert finish(StepEngine(runner, max_cache_bytes=0), [request]) == 1
    # The last pass may be of a token that nothing follows.
    reads = [place for place, event in enumerate(events) if event == "read"]
    assert len(reads) > 3
    assert all(events[place - 1] == "tokens that nobody has read" for place in reads[:-1])


def test_a_pass_waits_for_the_one_before(runner: MlxRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for itself, and never are two of them under way besides it."""
    ordered: list[set[int]] = []
    waited: list[set[int]] = []
    kept: list[Any] = []  # so that no other array gets the same id
    order: Callable[..., None] = mx.async_eval

    def watch_order(*orders: Any) -> None:
        kept.append(orders)
        if len(orders) == 1 and isinstance(orders[0], list):
            ordered.append({id(array) for array in orders[0]})
        order(*orders)

    def watch_wait(*orders: Any) -> None:
        kept.append(orders)
        waited.append({id(array) for each in orders for array in (each if isinstance(each, list) else [each])})

    rows = [[Row(slot, start, np.arange(20, 23, dtype=np.int32), 1) for slot in range(2)] for start in (0, 3, 6)]
    monkeypatch.setattr(mx, "async_eval", watch_order)
    monkeypatch.setattr(mx, "eval", watch_wait)
    for each in rows:
        runner.forward(each)
    assert waited == [set(), *ordered[:2]] and len(ordered) == 3
