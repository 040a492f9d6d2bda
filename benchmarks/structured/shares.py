"""What the state machine takes of a step: an engine in this process on the real weights, its matchers timed.

Counts the steps in which a whole batch of structured streams decodes, at temperature 1.
"""

import itertools
import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.report.samples import percentile
from benchmarks.servers.models import Models
from benchmarks.structured.masks import make_builder
from benchmarks.structured.schemas import ASKED
from benchmarks.work.prompts import Prompts
from proxy_inference_engine.engine.engine import Delivery, StepEngine
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from proxy_inference_engine.state_machine.schema_report import Trial
from proxy_inference_engine.types import (
    Constraint,
    Failed,
    Finished,
    Limits,
    Matcher,
    Prefilled,
    ReasoningBudget,
    Request,
    Sampling,
    State,
)

BATCHES = (1, 8)
_PROMPT_TOKENS = 32
_MAX_TOKENS = 400
_SLOT_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Share:
    """What the matchers took of the steps that were counted."""

    num_streams: int
    num_steps: int
    share: float
    step_ms: float
    tokens_per_step: float  # of one stream: more than one where tokens were forced
    mask_p50_us: float  # of the masks that were needed: forced tokens need none
    mask_p99_us: float


@dataclass(slots=True)
class _Ledger:
    """What the matchers of an engine took, all of them together."""

    seconds: float = 0.0
    mask_us: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Counted:
    """Sums over the steps that count."""

    num_steps: int = 0
    step_s: float = 0.0
    matcher_s: float = 0.0
    num_tokens: int = 0
    mask_us: list[float] = field(default_factory=list)


class Shares:
    """An engine of its own. It computes in the thread that loads it, as OpenMP wants it."""

    def __init__(self, models: Models, threads: int) -> None:
        settings = Settings(name=models.name, lanes=(Lane(max(BATCHES), _SLOT_TOKENS),), threads=threads)
        runner = LlamaRunner(Model(models.converted), settings)
        self._engine = StepEngine(runner, max_cache_bytes=runner.cache_bytes)
        self._prompts = Prompts(models.vocabulary.encode)
        self._encode = models.vocabulary.encode
        trial = Trial(make_builder())
        machines = [trial.compile(case.schema).machine for case in ASKED]
        self._constraints = [machine.constraint for machine in machines if machine and machine.constraint]

    def measure(self, seed: str, num_streams: int, num_steps: int) -> Share:
        """Batch after batch, until so many steps count."""
        counted = _Counted()
        numbers = itertools.count()
        while counted.num_steps < num_steps:
            ledger = _Ledger()
            requests = [self._request(seed, next(numbers), ledger) for _ in range(num_streams)]
            self._run_batch(requests, ledger, counted)
        return Share(
            num_streams=num_streams,
            num_steps=counted.num_steps,
            share=counted.matcher_s / counted.step_s,
            step_ms=1000 * counted.step_s / counted.num_steps,
            tokens_per_step=counted.num_tokens / counted.num_steps / num_streams,
            mask_p50_us=percentile(counted.mask_us, 0.5),
            mask_p99_us=percentile(counted.mask_us, 0.99),
        )

    def _run_batch(self, requests: list[Request], ledger: _Ledger, counted: _Counted) -> None:
        engine, stats = self._engine, self._engine.stats
        for request in requests:
            engine.add(request)
        num_decoding = 0
        while engine.has_work:
            is_whole = num_decoding == len(requests)
            step_s, num_tokens = stats.total_step_seconds, stats.total_generated_tokens
            ledger.seconds, ledger.mask_us = 0.0, []
            num_decoding += _num_started(engine.step())
            if is_whole:
                counted.num_steps += 1
                counted.step_s += stats.total_step_seconds - step_s
                counted.num_tokens += stats.total_generated_tokens - num_tokens
                counted.matcher_s += ledger.seconds
                counted.mask_us += ledger.mask_us

    def _request(self, seed: str, number: int, ledger: _Ledger) -> Request:
        name = f"{seed} {number}"
        constraint = self._constraints[number % len(self._constraints)]
        return Request(
            id=name,
            tenant="",
            prompt_ids=tuple(self._encode(self._prompts.text(name, _PROMPT_TOKENS))),
            sampling=Sampling(seed=number),
            limits=Limits(_MAX_TOKENS),
            constraint=_TimedConstraint(constraint, ledger),
        )


def _num_started(delivered: list[Delivery]) -> int:
    """How many streams more decode now; those that ended count against those that began."""
    for each in delivered:
        if isinstance(each.output, Failed):
            raise RuntimeError(f"a request failed: {each.output.error}")
    return sum(isinstance(each.output, Prefilled) - isinstance(each.output, Finished) for each in delivered)


@dataclass(frozen=True, slots=True)
class _TimedConstraint:
    """Implements `types.Constraint`."""

    constraint: Constraint
    ledger: _Ledger

    @property
    def min_reasoning_tokens(self) -> int:
        return self.constraint.min_reasoning_tokens

    @property
    def budget(self) -> ReasoningBudget | None:
        return self.constraint.budget

    @property
    def grammar(self) -> str | None:
        return self.constraint.grammar

    def start(self) -> "_TimedMatcher":
        return _TimedMatcher(self.constraint.start(), self.ledger)


class _TimedMatcher:
    """Implements `types.Matcher`: another one, with a clock beside it."""

    def __init__(self, matcher: Matcher, ledger: _Ledger) -> None:
        self._matcher = matcher
        self._ledger = ledger

    @property
    def state(self) -> State:
        return self._matcher.state

    @property
    def is_complete(self) -> bool:
        began = time.perf_counter()
        is_complete = self._matcher.is_complete
        self._ledger.seconds += time.perf_counter() - began
        return is_complete

    def mask(self) -> NDArray[np.bool_] | None:
        began = time.perf_counter()
        allowed = self._matcher.mask()
        seconds = time.perf_counter() - began
        self._ledger.seconds += seconds
        self._ledger.mask_us.append(seconds * 1e6)
        return allowed

    def prepare(self) -> None:
        began = time.perf_counter()
        self._matcher.prepare()
        self._ledger.seconds += time.perf_counter() - began

    def forced(self) -> list[int]:
        began = time.perf_counter()
        ids = self._matcher.forced()
        self._ledger.seconds += time.perf_counter() - began
        return ids

    def accept(self, token_id: int) -> None:
        began = time.perf_counter()
        self._matcher.accept(token_id)
        self._ledger.seconds += time.perf_counter() - began
