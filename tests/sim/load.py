"""Random arrivals at an engine under a virtual clock, and when each of them began and ended."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.queue import Admission, RequestBook
from proxy_inference_engine.errors import QueueFull
from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.types import Failed, Finished, Prefilled, Request
from tests.clock import Clock
from tests.requests import make_request

# As on two cores: a row costs nearly as much as the weights, a token of a prompt a little less.
PASS_S, TOKEN_S = 0.008, 0.002
ENDLESS = -40.0


@dataclass(slots=True)
class Stay:
    """One request's time."""

    request: Request
    arrived: float
    first: float | None = None
    ended: float | None = None


@dataclass
class Load:
    """`refused` were turned away at the door, `late` waited too long."""

    num_slots: int = 8
    admission: Admission = field(default_factory=Admission)
    queue_timeout_s: float | None = None
    on_rows: Callable[["Load", list[Row]], None] = lambda _load, _rows: None

    def __post_init__(self) -> None:
        self.clock = Clock(0.0)
        runner = FakeRunner(
            lanes=[Lane(self.num_slots, 512)],
            end_bias=ENDLESS,
            step_seconds=lambda num_tokens: PASS_S + TOKEN_S * num_tokens,
            sleep=self.clock.sleep,
            on_forward=lambda rows: self.on_rows(self, list(rows)),
        )
        self.engine = StepEngine(runner, max_cache_bytes=0, queue_timeout_s=self.queue_timeout_s, clock=self.clock)
        self.book = RequestBook(self.clock)
        self.stays: dict[str, Stay] = {}
        self.num_refused = self.num_late = 0

    def arrive(self, request: Request) -> None:
        try:
            self.admission.check_request(request, self.book.unanswered.values(), self.num_slots)
        except QueueFull:
            self.num_refused += 1
            return
        self.book.enter(request)
        self.stays[request.id] = Stay(request, self.clock.now)
        self.engine.add(request)

    def step(self) -> None:
        if not self.engine.has_work:
            self.clock.sleep(0.001)
            return
        for delivery in self.engine.step():
            stay = self.stays[delivery.request_id]
            self.book.begin(delivery.request_id)
            if isinstance(delivery.output, Prefilled):
                stay.first = self.clock.now
            elif isinstance(delivery.output, Finished | Failed):
                self.book.leave(delivery.request_id)
                if isinstance(delivery.output, Finished):
                    stay.ended = self.clock.now
                else:
                    self.num_late += 1
        self.engine.check()

    def run(self, arrivals: list[tuple[float, Request]], until: float | None = None) -> None:
        """Until everybody is gone, or for so long."""
        arrivals = sorted(arrivals, key=lambda pair: pair[0])
        while arrivals or self.engine.has_work:
            if until is not None and self.clock.now >= until:
                return
            while arrivals and arrivals[0][0] <= self.clock.now:
                self.arrive(arrivals.pop(0)[1])
            self.step()


def poisson(
    seed: int, per_second: float, seconds: float, name: str = "u", **fields: int
) -> list[tuple[float, Request]]:
    """Prompts of 20 tokens and answers of 10, all different, of three keys."""
    chance, now, arrivals = random.Random(seed), 0.0, list[tuple[float, Request]]()
    while (now := now + chance.expovariate(per_second)) < seconds:
        prompt = [chance.randint(97, 122) for _ in range(20)]
        id_ = f"{name}{len(arrivals)}"
        tenant = chance.choice("abc")
        arrivals.append((now, make_request(prompt, id=id_, tenant=tenant, max_tokens=10, **fields)))  # type: ignore[arg-type]
    return arrivals
