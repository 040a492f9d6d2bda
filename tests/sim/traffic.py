"""Random traffic against the engine on a real runner: arrivals, cancellations, pressure, scripted grammars, guesses.

The smaller sister of `simulation.py`. One seed decides all but the sizes of chunks, which follow the clock. Each
request that survives has the answer that it gets alone in one long slot, with no cache and no guess.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.runners.base import Runner
from proxy_inference_engine.types import (
    Failed,
    Finished,
    Limits,
    Logprob,
    Matcher,
    Output,
    Prefilled,
    Request,
    Sampling,
    State,
    Token,
)
from tests.sim.scripted import ScriptedConstraint

_MAX_STEPS = 3000
_LETTERS = (97, 122)


@dataclass(slots=True)
class Heard:
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Logprob | None] = field(default_factory=list)
    prompt_logprobs: tuple[Logprob | None, ...] = ()
    ends: list[str] = field(default_factory=list)

    def take(self, output: Output) -> None:
        assert not self.ends, "an output after the end"
        match output:
            case Prefilled():
                self.prompt_logprobs = output.prompt_logprobs or ()
            case Token():
                self.token_ids.append(output.id)
                self.logprobs.append(output.logprob)
            case Finished():
                self.ends.append(output.reason)
            case Failed():
                self.ends.append("failed")

    def distance(self, other: "Heard") -> float:
        """The largest difference of two log-probabilities; infinite where anything else differs."""
        if (self.token_ids, self.ends) != (other.token_ids, other.ends):
            return float("inf")
        pairs = [*zip(self.logprobs, other.logprobs, strict=True)]
        pairs += zip(self.prompt_logprobs, other.prompt_logprobs, strict=True)
        if any((one is None) != (two is None) for one, two in pairs):
            return float("inf")
        return max((abs(one.logprob - two.logprob) for one, two in pairs if one and two), default=0.0)


@dataclass(frozen=True, slots=True)
class Script:
    """A scripted grammar over another vocabulary than the one it was written for."""

    script: ScriptedConstraint
    num_tokens: int
    end_ids: frozenset[int]

    @property
    def min_reasoning_tokens(self) -> int:
        return 0

    @property
    def budget(self) -> None:
        return None

    @property
    def grammar(self) -> str | None:
        return None

    def start(self) -> Matcher:
        return _ScriptMatcher(self)


class _ScriptMatcher:
    def __init__(self, constraint: Script) -> None:
        self._constraint = constraint
        self._matcher = constraint.script.start()

    @property
    def state(self) -> State:
        return self._matcher.state

    @property
    def is_complete(self) -> bool:
        return self._matcher.is_complete

    def prepare(self) -> None:
        self._matcher.prepare()

    def mask(self) -> NDArray[np.bool_] | None:
        narrow = self._matcher.mask()
        if narrow is None:
            return None
        wide = np.zeros(self._constraint.num_tokens, np.bool_)
        wide[:256] = narrow[:256]
        wide[list(self._constraint.end_ids)] = narrow[256:].any()
        return wide

    def forced(self) -> list[int]:
        return self._matcher.forced()

    def accept(self, token_id: int) -> None:
        self._matcher.accept(token_id)


class Traffic:
    """`answer` gives what the choices of a request hear alone."""

    def __init__(self, seed: int, runner: Runner, answer: Callable[[Request], list[Heard]]) -> None:
        self.random = random.Random(seed)
        self._answer = answer
        self._runner = runner
        self.engine = StepEngine(
            runner,
            max_cache_bytes=self.random.choice([0, 40_000, 400_000, 4_000_000]),
            step_target_s=self.random.choice([0.002, 0.01, 0.05]),
        )
        self._context = max(lane.slot_tokens for lane in runner.lanes)
        self._shared = [self._ids(self.random.randint(5, self._context // 2)) for _ in range(2)]
        self.requests: dict[str, Request] = {}
        self.heard: dict[tuple[str, int], Heard] = {}
        self.alone: dict[str, list[Heard]] = {}
        self.cancelled: set[str] = set()
        self.failed: set[str] = set()

    def run(self, num_requests: int) -> float:
        """The largest difference of a log-probability from what a request hears alone."""
        for _ in range(_MAX_STEPS):
            while len(self.requests) < num_requests and self.random.random() < 0.3:
                self._arrive()
            if self.requests and self.random.random() < 0.03:
                self._cancel(self.random.choice(list(self.requests)))
            self._step()
            if len(self.requests) == num_requests and not self.engine.has_work:
                break
        assert not self.engine.has_work, "no progress"
        assert self.engine.scheduler.slots.num_held == 0
        return max((self._distance(request) for request in self.requests.values()), default=0.0)

    def _step(self) -> None:
        for request_id, choice, output in self.engine.step():
            if isinstance(output, Failed):
                self.failed.add(request_id)
            self.heard.setdefault((request_id, choice), Heard()).take(output)
        self.engine.check()

    def _distance(self, request: Request) -> float:
        if request.id in self.cancelled or request.id in self.failed:
            return 0.0
        heard = [self.heard[request.id, choice] for choice in range(request.num_choices)]
        assert all(len(one.ends) == 1 for one in heard)
        alone = self.alone[request.id]
        return max(one.distance(other) for one, other in zip(heard, alone, strict=True))

    def _arrive(self) -> None:
        tenant, prompt = self._prompt()
        room = self._context - len(prompt)
        request = Request(
            id=f"r{len(self.requests)}",
            tenant=tenant,
            prompt_ids=tuple(prompt),
            sampling=Sampling(
                seed=self.random.randrange(1 << 32),
                temperature=self.random.choice([0.0, 0.7, 1.0]),
                top_p=self.random.choice([1.0, 0.9]),
                repetition_penalty=self.random.choice([1.0, 1.0, 1.2]),
                logit_bias=self.random.choice([{}, {}, {97: 30.0, 98: 30.0}]),
            ),
            limits=Limits(self.random.randint(0, min(room + 1, 30)), ignore_eos=self.random.random() < 0.2),
            num_choices=self.random.choice([1, 1, 1, 2]),
            num_top_logprobs=self.random.choice([None, None, 2]),
            num_prompt_logprobs=self.random.choice([None, None, None, 0]),
            constraint=self._constraint() if self.random.random() < 0.3 else None,
        )
        self.alone[request.id] = self._answer(request)
        request = replace(request, draft_ids=self._draft(request.id))
        self.requests[request.id] = request
        self.engine.add(request)

    def _prompt(self) -> tuple[str, list[int]]:
        """Whose it is, and its tokens: of the next turn after an earlier one, over a shared beginning, or new."""
        tenant = self.random.choice(["a", "a", "a", "b", "c"])
        prefix = self.random.choice(self._shared) if self.random.random() < 0.5 else []
        if self.requests and self.random.random() < 0.3:
            earlier = self.random.choice(list(self.requests.values()))
            tenant, prefix = earlier.tenant, [*earlier.prompt_ids, *self.alone[earlier.id][0].token_ids]
        return tenant, (prefix + self._ids(self.random.randint(1, 20)))[: self._context - 1]

    def _ids(self, length: int) -> list[int]:
        return [self.random.randint(*_LETTERS) for _ in range(length)]

    def _constraint(self) -> Script:
        script = ScriptedConstraint(self.random.randrange(1 << 30), self.random.randint(1, 150))
        return Script(script, self._runner.tokenizer.num_tokens, self._runner.tokenizer.end_ids)

    def _draft(self, request_id: str) -> tuple[int, ...]:
        """None, the answer itself, or the answer with something changed."""
        if self.random.random() < 0.5:
            return ()
        ids = list(self.alone[request_id][0].token_ids)
        start = self.random.randint(0, len(ids))
        ids[start : start + self.random.randint(0, 3)] = self._ids(self.random.randint(0, 3))
        return tuple(ids)

    def _cancel(self, request_id: str) -> None:
        self.engine.cancel(request_id)
        self.engine.cancel(request_id)
        self.cancelled.add(request_id)
        self.engine.check()


def answer_alone(runner: Runner, request: Request) -> list[Heard]:
    """On a runner that has a slot of the longest kind for each choice. A failure is an answer too."""
    engine = StepEngine(runner, max_cache_bytes=0)
    engine.add(replace(request, draft_ids=()))
    heard = [Heard() for _ in range(request.num_choices)]
    while engine.has_work:
        for _, choice, output in engine.step():
            heard[choice].take(output)
    return heard
