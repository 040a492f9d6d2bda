"""A StepEngine under a clock that only the fake runner moves, and what every choice heard from it."""

from collections import defaultdict
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

import numpy as np

from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.sequence import Samplers, Sequence
from proxy_inference_engine.errors import PieError
from proxy_inference_engine.runners.base import Lane, Logits, Row
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.types import Failed, Finished, Output, Prefilled, Request, Token
from tests.clock import Clock

ENDLESS = -40.0  # an `end_bias` under which no end token is ever drawn
ABRUPT = 40.0  # and one under which nothing else is
_MAX_STEPS = 3000


@dataclass(slots=True)
class Heard:
    """The outputs of one choice."""

    outputs: list[Output] = field(default_factory=list)

    @property
    def tokens(self) -> list[Token]:
        return [output for output in self.outputs if isinstance(output, Token)]

    @property
    def token_ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def prefilled(self) -> Prefilled:
        (output,) = (output for output in self.outputs if isinstance(output, Prefilled))
        return output

    @property
    def finished(self) -> Finished:
        (output,) = (output for output in self.outputs if isinstance(output, Finished))
        return output

    @property
    def error(self) -> PieError:
        (output,) = (output for output in self.outputs if isinstance(output, Failed))
        return output.error


class Driven:
    """Checks the engine's invariants after every step."""

    def __init__(
        self, runner: FakeRunner | None = None, *, max_cache_bytes: int = 1 << 20, clock: Clock | None = None
    ) -> None:
        self.clock = clock or Clock()
        self.runner = runner or FakeRunner(end_bias=ENDLESS)
        self.engine = StepEngine(self.runner, max_cache_bytes=max_cache_bytes, step_target_s=0.05, clock=self.clock)
        self.heard: defaultdict[tuple[str, int], Heard] = defaultdict(Heard)

    def add(self, *requests: Request) -> None:
        for request in requests:
            self.engine.add(request)

    def step(self, num_steps: int = 1) -> None:
        for _ in range(num_steps):
            for request_id, choice, output in self.engine.step():
                self.heard[request_id, choice].outputs.append(output)
            self.engine.check()

    def run(self, *requests: Request) -> Heard:
        """Add the requests and step until nothing is left; what the first choice of the first one heard."""
        self.add(*requests)
        for _ in range(_MAX_STEPS):
            if not self.engine.has_work:
                break
            self.step()
        assert not self.engine.has_work, "no progress"
        self.assert_idle()
        return self.heard[requests[0].id, 0] if requests else Heard()

    def assert_idle(self) -> None:
        """Nothing runs, waits or holds memory of the runner."""
        assert not self.engine.has_work
        assert self.engine.scheduler.slots.num_held == 0
        assert not any(self.runner.num_slot_tokens(slot) for slot in range(self.engine.scheduler.slots.num_slots))

    def slots(self) -> dict[str, int | None]:
        """Who runs where, by request."""
        return {sequence.request.id: sequence.slot for sequence in self.engine.scheduler.running}


def alone(request: Request, *, end_bias: float = ENDLESS) -> Heard:
    """What the first choice of a request hears with the machine to itself and no cache."""
    runner = FakeRunner(lanes=[Lane(request.num_choices, 2048)], end_bias=end_bias)
    return Driven(runner, max_cache_bytes=0).run(request)


def logits_of(ids: SequenceOf[int], *, end_bias: float = ENDLESS) -> Logits:
    """The model's logits after each of the tokens, computed in one pass."""
    runner = FakeRunner(lanes=[Lane(1, len(ids))], end_bias=end_bias)
    return runner.forward([Row(0, 0, np.array(ids, np.int32), len(ids))])[0]


def make_sequence(request: Request, *, choice: int = 0, arrival: int = 1) -> Sequence:
    sampler = Samplers(request, choice, num_tokens=260)
    return Sequence(request, choice, sampler, arrival, arrived_at=0.0)


class Faults:
    """An `on_forward` or `on_copy` that raises in the calls with the given numbers, the first being 1."""

    def __init__(self, *calls: int) -> None:
        self.num_calls = 0
        self._calls = calls

    def __call__(self, rows: SequenceOf[Row] = ()) -> None:
        self.num_calls += 1
        if self.num_calls in self._calls:
            raise RuntimeError("injected fault")
