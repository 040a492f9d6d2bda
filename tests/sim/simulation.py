"""Random traffic against the real engine, scheduler, cache and slots, on the fake runner under a virtual clock.

One seed decides everything. After every step the invariants are checked; at the end every request has exactly one
terminal output, and each that survived has the tokens it gets alone, without a draft and with the cache off.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from proxy_inference_engine.cache.prefix import Node, Path
from proxy_inference_engine.engine.engine import Delivery, StepEngine
from proxy_inference_engine.errors import EngineFailure
from proxy_inference_engine.runners.base import Lane, Row, Segment, TokenIds
from proxy_inference_engine.runners.fake import ByteTokenizer, FakeRunner
from proxy_inference_engine.types import (
    IDLE_PRIORITY,
    Failed,
    Finished,
    Limits,
    Logprob,
    Prefilled,
    Request,
    Sampling,
    Token,
)
from tests.clock import Clock
from tests.deferred import DeferredRunner
from tests.drafts import DraftRunner
from tests.sim.scripted import ScriptedConstraint

POISON = 7  # a token id that makes its sequence's logits NaN
_MAX_STEPS = 6000


@dataclass(slots=True)
class Heard:
    """What came out for one choice."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Logprob | None] = field(default_factory=list)
    prompt_logprobs: tuple[Logprob | None, ...] | None = None
    num_prefilled: int = 0
    reason: str | None = None
    num_accepted: int = 0
    num_rejected: int = 0

    def answer(self) -> tuple[object, ...]:
        return self.token_ids, self.logprobs, self.prompt_logprobs, self.reason


class Simulation:
    """`run` drives one seed to its end; `heard` and `failed` tell what the requests heard."""

    def __init__(self, seed: int, *, engine_type: type[StepEngine] = StepEngine) -> None:
        self.random = random.Random(seed)
        self.clock = Clock()
        self.lanes = self._lanes()
        self.can_splice = self.random.random() < 0.8
        self.fault_rate = self.random.choice([0.0, 0.0, 0.0, 0.02])
        runner = DeferredRunner(
            lanes=self.lanes,
            step_seconds=lambda num_tokens: 0.002 + 0.001 * num_tokens,
            sleep=self.clock.sleep,
            on_forward=self._compute,
            on_copy=self._maybe_fault,
            poison_id=POISON,
            can_splice=self.can_splice,
        )
        if random.Random(f"defer {seed}").random() < 0.4:
            runner.defer()
        budget = self.random.choice([0, 2_000, 20_000, 2_000_000])
        self.guessing = random.Random(f"guess {seed}")
        runner.max_logits = self.guessing.choice([runner.max_logits, 9])
        self.engine = engine_type(
            runner,
            max_cache_bytes=budget,
            step_target_s=0.05,
            clock=self.clock,
        )
        self.runner = runner
        self.inserting = ""  # the tenant for whom the cache makes room
        self.num_given = self.num_taken = 0  # leaves that a tenant lost for itself, and for another
        self.wronged: str | None = None  # who lost some of a fair share to another
        self._watch_evictions()
        self.drafting = random.Random(f"draft {seed}")
        self.draft_fault_rate = 0.0
        self.draft = self._draft_model()
        self.context = max(lane.slot_tokens for lane in self.lanes)
        # A bushy tree: many short prompts of two letters, which meet and part again and again.
        self.is_bushy = self.random.random() < 0.3
        self.shared = [self._ids(self.random.randint(5, self.context // 2)) for _ in range(3)]
        self.requests: dict[str, Request] = {}
        self.heard: dict[tuple[str, int], Heard] = {}
        self.failed: dict[str, int] = {}
        self.cancelled: set[str] = set()
        self.alone: dict[str, list[Heard] | None] = {}
        self.most_logits = 0  # of one lane in one pass
        self.ranking = random.Random(f"rank {seed}")
        self.priorities = self.ranking.choice([[0], [0, 0, 10_000, -10_000], [0, IDLE_PRIORITY], [0, 1, IDLE_PRIORITY]])
        self.num_idle_rows = 0
        self.is_intruded = False  # something was computed in idle time while somebody waited

    def run(self) -> None:
        num_requests = self.random.randint(40, 80) if self.is_bushy else self.random.randint(5, 25)
        for _ in range(_MAX_STEPS):
            while len(self.requests) < num_requests and self.random.random() < 0.3:
                self._arrive()
            if self.requests and self.random.random() < 0.03:
                self._cancel(self.random.choice(list(self.requests)))
            self._step()
            if len(self.requests) == num_requests and not self.engine.has_work:
                break
        assert not self.engine.has_work, "no progress"
        self._check_end()

    def _step(self) -> None:
        deliveries = self.engine.step()
        self.engine.check()
        assert self.most_logits <= self.runner.max_logits, "too many logits for a pass"
        assert self.wronged is None, "an eviction from a fair share"
        assert not self.is_intruded, "somebody waited for what fills idle time"
        for delivery in deliveries:
            self._hear(delivery)
        if not self.engine.has_work:
            self._check_idle()

    def _hear(self, delivery: Delivery) -> None:
        request_id, choice, output = delivery
        assert request_id not in self.failed, "an output after the failure"
        heard = self.heard.setdefault((request_id, choice), Heard())
        assert heard.reason is None, "an output after the end"
        match output:
            case Prefilled():
                assert heard.num_prefilled == 0 and not heard.token_ids
                heard.num_prefilled += 1
                heard.prompt_logprobs = output.prompt_logprobs
            case Token():
                assert heard.num_prefilled == 1
                heard.token_ids.append(output.id)
                heard.logprobs.append(output.logprob)
            case Finished():
                heard.reason = output.reason
                heard.num_accepted, heard.num_rejected = output.num_accepted, output.num_rejected
            case Failed():
                self.failed[request_id] = self.failed.get(request_id, 0) + 1

    def _arrive(self) -> None:
        prompt = self._prompt()
        if self.random.random() < 0.05:
            prompt[self.random.randrange(len(prompt))] = POISON
        room = self.context - len(prompt)
        request = Request(
            id=f"r{len(self.requests)}",
            tenant=self.random.choice(["a", "a", "a", "b", "c"]),
            prompt_ids=tuple(prompt),
            sampling=self._sampling(),
            limits=Limits(
                self.random.randint(0, min(room + 1, 2 if self.is_bushy else 60)), ignore_eos=self.random.random() < 0.2
            ),
            num_choices=self.random.choice([1, 1, 1, 2, 4]),
            num_top_logprobs=self.random.choice([None, None, 2]),
            num_prompt_logprobs=self.random.choice([None, None, None, 0]),
            constraint=self._constraint() if self.random.random() < 0.3 else None,
            priority=self.ranking.choice(self.priorities),
        )
        self.alone[request.id] = _answers_if_any(request, self.context)
        request = replace(request, draft_ids=self._draft(request.id))
        self.requests[request.id] = request
        try:
            self.engine.add(request)
        except EngineFailure:  # at the door: its grammar failed in what it forces first
            assert _fails(request)
            self.failed[request.id] = 1

    def _prompt(self) -> list[int]:
        if self.is_bushy:
            return self._ids(self.random.randint(3, 9))
        prefix = self.random.choice(self.shared) if self.random.random() < 0.6 else []
        return (prefix + self._ids(self.random.randint(1, 20)))[: self.context - 1]

    def _sampling(self) -> Sampling:
        return Sampling(
            seed=self.random.randrange(1 << 32),
            temperature=self.random.choice([0.0, 0.7, 1.0]),
            top_p=self.random.choice([1.0, 0.9]),
            repetition_penalty=self.random.choice([1.0, 1.2]),
            logit_bias=self.guessing.choice([{}, {}, {97: 30.0, 98: 30.0}]),  # two letters repeat themselves
        )

    def _constraint(self) -> ScriptedConstraint:
        fails_at = self.random.randint(1, 30) if self.random.random() < 0.1 else None
        return ScriptedConstraint(self.random.randrange(1 << 30), self.random.randint(1, 150), fails_at)

    def _draft(self, request_id: str) -> tuple[int, ...]:
        """None, one of noise, the answer itself, or the answer with something changed, missing or added."""
        if self.guessing.random() < 0.5:
            return ()
        answers = self.alone[request_id]
        noise = [self.guessing.randint(97, 122) for _ in range(self.guessing.randint(1, 40))]
        if answers is None or self.guessing.random() < 0.2:
            return tuple(noise)
        ids = list(self.guessing.choice(answers).token_ids)
        for _ in range(self.guessing.choice([0, 0, 1, 3])):
            start = self.guessing.randint(0, len(ids))
            ids[start : start + self.guessing.randint(0, 3)] = noise[: self.guessing.randint(0, 3)]
        return tuple(ids)

    def _cancel(self, request_id: str) -> None:
        """Twice, now and then: a second cancel must change nothing."""
        for _ in range(self.random.choice([1, 2])):
            self.engine.cancel(request_id)
        self.cancelled.add(request_id)
        self.engine.check()

    def _ids(self, length: int) -> list[int]:
        return [self.random.randint(97, 98 if self.is_bushy else 122) for _ in range(length)]

    def _lanes(self) -> Sequence[Lane]:
        wide = Lane(self.random.choice([1, 2, 3, 8]), self.random.choice([24, 48, 96]))
        long = [Lane(1, 4 * wide.slot_tokens)] * self.random.choice([0, 1, 2])
        return wide, *long

    def _draft_model(self) -> DraftRunner | None:
        """In some seeds: cheap or dear, mostly right or not, with other slots than the model, and failing in a few."""
        if self.drafting.random() < 0.5:
            return None
        self.draft_fault_rate = self.drafting.choice([0.0, 0.0, 0.05])
        cost = self.drafting.choice([0.0, 0.0, 0.0001, 0.01])
        draft = DraftRunner(
            wrong_every=self.drafting.choice([0, 2, 3, 5]),
            lanes=(Lane(self.drafting.choice([1, 4, 9]), self.drafting.choice([40, 100, 500])), Lane(1, 120)),
            step_seconds=lambda num_tokens: cost * num_tokens,
            sleep=self.clock.sleep,
            on_forward=self._maybe_fault_draft,
        )
        self.engine.draft_with(draft, self.drafting.choice([1, 4, 8]))
        return draft

    def _watch_evictions(self) -> None:
        insert = self.engine.cache.insert

        def noting(tenant: str, ids: TokenIds, export: Callable[[int], Segment], num_bytes: int) -> None:
            self.inserting = tenant
            insert(tenant, ids, export, num_bytes)

        self.engine.cache.insert = noting  # type: ignore[method-assign]
        self.engine.cache.on_evict = self._check_eviction

    def _check_eviction(self, path: Path) -> None:
        """Nobody loses for another what is within a fair share, which is counted here node by node."""
        if path.tenant == self.inserting:
            self.num_given += 1
            return
        self.num_taken += 1
        cache = self.engine.cache
        held = {tenant: _bytes_below(root) for tenant, root in cache._roots.items()}
        tenants = {tenant for tenant in held if held[tenant]} | {self.inserting}
        if held[path.tenant] * len(tenants) <= cache.max_bytes:  # to raise here would only cost an insertion
            self.wronged = path.tenant

    def _maybe_fault_draft(self, rows: Sequence[Row]) -> None:
        if self.drafting.random() < self.draft_fault_rate:
            raise RuntimeError("injected fault of the draft model")

    def _compute(self, rows: Sequence[Row]) -> None:
        num_logits: Counter[int] = Counter()
        for row in rows:
            num_logits[self.engine.scheduler.slots.lane_of(row.slot)] += row.num_logits
        self.most_logits = max(self.most_logits, *num_logits.values())
        self._watch_idle({row.slot for row in rows})
        self._maybe_fault()

    def _watch_idle(self, slots: set[int]) -> None:
        scheduler = self.engine.scheduler
        num_rows = sum(sequence.fills_idle and sequence.slot in slots for sequence in scheduler.running)
        self.num_idle_rows += num_rows
        self.is_intruded |= bool(num_rows) and scheduler.waiting.has_wanted

    def _maybe_fault(self) -> None:
        if self.random.random() < self.fault_rate:
            raise RuntimeError("injected fault")

    def _check_idle(self) -> None:
        """Nothing may be held: no slot, no lock, no KV in any slot."""
        assert self.engine.scheduler.slots.num_held == 0
        for slot in range(self.engine.scheduler.slots.num_slots):
            assert self.runner.num_slot_tokens(slot) == 0, f"slot {slot} keeps KV"
        assert self.draft is None or self.draft.num_held_slots() == 0, "the draft model keeps KV"

    def _check_end(self) -> None:
        assert self.can_splice or self.engine.stats.total_draft_tokens == 0, "a guess that could not be forgotten"
        assert self.draft_fault_rate or self.draft is None or not self.draft.is_closed, "drafts ended without a cause"
        for request in self.requests.values():
            if request.id in self.cancelled:
                continue
            if request.id in self.failed:
                assert self.failed[request.id] == 1, "failed more than once"
                has_cause = self._is_poisoned(request) or _fails(request)
                assert self.fault_rate or has_cause, "failed without a cause"
                continue
            alone = self.alone[request.id]
            assert alone is not None, "an answer that a request does not have alone"
            for choice in range(request.num_choices):
                heard = self.heard[request.id, choice]
                assert heard.answer() == alone[choice].answer(), (request, choice)
                assert heard.num_accepted <= len(heard.token_ids)
                assert request.draft_ids or heard.num_accepted == heard.num_rejected == 0
                _check_grammar(request, alone[choice])

    def _is_poisoned(self, request: Request) -> bool:
        """In its prompt, or by a token that it drew itself."""
        drawn = [self.heard.get((request.id, choice), Heard()).token_ids for choice in range(request.num_choices)]
        return POISON in request.prompt_ids or any(POISON in token_ids for token_ids in drawn)


def _bytes_below(node: Node) -> int:
    below = sum(_bytes_below(child) for child in node.children.values())
    return below + (node.segment.num_bytes if node.segment is not None else 0)


def _check_grammar(request: Request, heard: Heard) -> None:
    """What was heard, token by token, is what the grammar allowed."""
    if request.constraint is None:
        return
    matcher = request.constraint.start()
    for place, token_id in enumerate(heard.token_ids):
        mask = matcher.mask()
        assert not matcher.is_complete and (mask is None or mask[token_id]), f"token {place} was not allowed"
        matcher.accept(token_id)
    assert len(heard.token_ids) <= request.limits.max_tokens
    assert heard.reason != "stop" or matcher.is_complete or heard.token_ids[-1] in ByteTokenizer.end_ids


def _fails(request: Request) -> bool:
    return isinstance(request.constraint, ScriptedConstraint) and request.constraint.fails_at is not None


def _answers_if_any(request: Request, context: int) -> list[Heard] | None:
    try:
        return answers_alone(request, context)
    except EngineFailure:
        return None


def answers_alone(request: Request, context: int) -> list[Heard]:
    """What a request hears with the machine to itself, no draft and no cache: the reference. Raises if it fails."""
    runner = FakeRunner(lanes=[Lane(request.num_choices, context)], poison_id=POISON)
    engine = StepEngine(runner, max_cache_bytes=0)
    engine.add(replace(request, draft_ids=()))
    heard = [Heard() for _ in range(request.num_choices)]
    while engine.has_work:
        for _, choice, output in engine.step():
            match output:
                case Prefilled():
                    heard[choice].prompt_logprobs = output.prompt_logprobs
                case Token():
                    heard[choice].token_ids.append(output.id)
                    heard[choice].logprobs.append(output.logprob)
                case Finished():
                    heard[choice].reason = output.reason
                case Failed():
                    raise output.error
    return heard
