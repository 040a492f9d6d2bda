"""The engine: `step` is the whole of it. Read this first.

Synchronous and single-threaded, with the clock passed in, so a simulator can drive it. Knows token ids, not text.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from proxy_inference_engine.cache.prefix import PrefixCache, common_prefix
from proxy_inference_engine.engine.pace import Pace
from proxy_inference_engine.engine.scheduler import Grant, Scheduler
from proxy_inference_engine.engine.sequence import Group, Sequence
from proxy_inference_engine.engine.speculation import make_drafter
from proxy_inference_engine.errors import ContextLengthExceeded, EngineFailure, PieError
from proxy_inference_engine.runners.base import Logits, Row, Runner
from proxy_inference_engine.sampling.logprobs import logprob_of, prompt_logprobs
from proxy_inference_engine.sampling.sampler import InvalidLogits
from proxy_inference_engine.sampling.samplers import Samplers
from proxy_inference_engine.state_machine.matcher import GrammarFailure
from proxy_inference_engine.types import Failed, Finished, FinishReason, Output, Prefilled, Request, Timings, Token

_log = logging.getLogger(__name__)

_NOTHING: frozenset[int] = frozenset()


class Delivery(NamedTuple):
    """One output on its way to the request that waits for it."""

    request_id: str
    choice: int
    output: Output


@dataclass(slots=True)
class Totals:
    """Counters that only grow."""

    prompt_tokens: int = 0
    prompt_tokens_cached: int = 0
    generated_tokens: int = 0
    steps: int = 0
    step_seconds: float = 0.0
    forward_seconds: float = 0.0
    failures: int = 0
    draft_tokens: int = 0  # guessed ahead and computed
    draft_tokens_accepted: int = 0


class StepEngine:
    """Continuous batching over one runner. `ngram_draft_tokens`: most tokens to guess ahead from a text's own past."""

    def __init__(
        self,
        runner: Runner,
        *,
        max_cache_bytes: int,
        step_target_s: float = 0.2,
        ngram_draft_tokens: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.runner = runner
        self.cache = PrefixCache(max_cache_bytes, can_splice=runner.can_splice)
        self.pace = Pace(target_s=step_target_s, alone_target_s=5 * step_target_s)
        self.scheduler = Scheduler(runner, self.cache, self.pace)
        self.totals = Totals()
        self.num_forward_failures = 0  # in a row
        self._groups: dict[str, Group] = {}
        self._outbox: list[Delivery] = []
        self._arrivals = 0
        self._clock = clock
        self._end_ids = runner.tokenizer.end_ids
        self._ngram_draft_tokens = ngram_draft_tokens

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.running) or len(self.scheduler.waiting) > 0 or bool(self._outbox)

    @property
    def context_tokens(self) -> int:
        return self.scheduler.slots.max_tokens

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._groups

    def add(self, request: Request) -> None:
        """Queue every choice of a request. Raises when it can never fit."""
        needed = len(request.prompt_ids) + max(1, request.limits.max_tokens)
        if needed > self.context_tokens + 1:  # the last sampled token needs no KV
            raise ContextLengthExceeded(f"the request needs {needed} tokens, a sequence holds {self.context_tokens}")
        try:
            sequences = [self._make_sequence(request, choice) for choice in range(request.num_choices)]
        except Exception:
            _log.exception("request %s could not be set up", request.id)
            raise EngineFailure("this request failed inside the engine") from None
        self._groups[request.id] = Group(request, sequences)
        for sequence in sequences:
            self.scheduler.add(sequence)

    def _make_sequence(self, request: Request, choice: int) -> Sequence:
        samplers = Samplers(request, choice, self.runner.tokenizer.num_tokens)
        matcher = None if request.constraint is None else request.constraint.start()
        # A guess that was wrong has to be forgotten again, which only memory that can be cut does.
        drafter = make_drafter(request, self._ngram_draft_tokens) if self.runner.can_splice else None
        self._arrivals += 1
        sequence = Sequence(request, choice, samplers, self._arrivals, self._clock(), matcher, drafter)
        self._jump(sequence)
        return sequence

    def cancel(self, request_id: str, choice: int | None = None) -> None:
        """End a request, or one choice of it, without another output. Harmless when it is already over."""
        group = self._groups.get(request_id)
        if group is None:
            return
        for sequence in group.sequences:
            if choice is None or sequence.choice == choice:
                self._close(sequence)

    def step(self) -> list[Delivery]:
        """One turn: schedule, forward, sample, hand out."""
        started = self._clock()
        grants = self.scheduler.schedule()
        if grants:
            for grant in grants:
                grant.sequence.start(started)
            logits = self._forward(grants)
            for grant, rows in zip(grants, logits, strict=False):
                self._advance_safely(grant, rows)
            self.totals.steps += 1
            self.totals.step_seconds += self._clock() - started
        delivered, self._outbox = self._outbox, []
        return delivered

    def fail_all(self, error: PieError) -> list[Delivery]:
        """End every request with an error: the thread is about to stop."""
        for request_id in list(self._groups):
            self._fail(request_id, error)
        delivered, self._outbox = self._outbox, []
        return delivered

    def _forward(self, grants: list[Grant]) -> list[Logits]:
        """Compute the grants; after a second failure in a row of the same step, its requests fail."""
        for attempt in (1, 2):
            began = self._clock()
            try:
                logits = self.runner.forward([_row(grant) for grant in grants])
            except Exception:
                _log.exception("forward pass failed (attempt %d)", attempt)
                if not self._take_back(grants):
                    break
                continue
            seconds = self._clock() - began
            self.totals.forward_seconds += seconds
            self.num_forward_failures = 0
            self._observe(grants, seconds)
            return logits
        self.num_forward_failures += 1
        for grant in grants:
            self._fail(grant.sequence.request.id, EngineFailure("the model failed to compute this request"))
        return []

    def _observe(self, grants: list[Grant], seconds: float) -> None:
        """Tell the pace what a pass cost; one with jumps or guesses in it says little of rows or of prompts."""
        num_decoding = sum(grant.sequence.num_pending == 1 for grant in grants)
        num_tokens = sum(grant.num_tokens for grant in grants)
        if not any(_is_wide(grant) for grant in grants):
            self.pace.observe(num_decoding, num_tokens - num_decoding, seconds)

    def _take_back(self, grants: list[Grant]) -> bool:
        """Forget what a failed pass may have left in its slots; False where the model's memory can't."""
        try:
            for grant in grants:
                self._cut(grant.sequence)
        except Exception:
            _log.exception("a failed pass could not be taken back")
            return False
        return True

    def _advance_safely(self, grant: Grant, logits: Logits) -> None:
        """The border of one request: whatever goes wrong here ends that request and no other."""
        if grant.sequence.is_over:  # a sibling failed in this very step
            return
        try:
            self._advance(grant, logits)
        except Exception as error:
            request_id = grant.sequence.request.id
            if isinstance(error, InvalidLogits):
                self._fail(request_id, EngineFailure("the model's output is not a number", code="model_output_invalid"))
            elif isinstance(error, GrammarFailure):
                _log.warning("the grammar of request %s failed: %s", request_id, error)
                self._fail(request_id, EngineFailure("the grammar is too complex to go on", code="grammar_failed"))
            else:
                _log.exception("request %s failed", request_id)
                self._fail(request_id, EngineFailure("this request failed inside the engine"))

    def _advance(self, grant: Grant, logits: Logits) -> None:
        """Commit what was computed; when all of it was, choose what comes next."""
        sequence, first = grant.sequence, grant.sequence.num_computed
        sequence.num_computed += grant.num_tokens
        if sequence.wants_prompt_logprobs:
            self._add_prompt_logprobs(sequence, first, logits)
        if sequence.num_pending:
            return
        if not sequence.is_prefilled:
            self._finish_prompt(sequence)
        reason = self._end_reason(sequence) or self._extend(grant, logits)
        if reason is not None:
            self._finish(sequence, reason)

    def _extend(self, grant: Grant, logits: Logits) -> FinishReason | None:
        """Choose a token, and one more after each guessed one that was chosen too; why the choice ends, if it does."""
        sequence, _, draft_ids = grant
        logits = logits[-1 - len(draft_ids) :]  # row i stands after i guessed tokens
        num_right, reason = 0, None
        while reason is None and not sequence.num_pending:
            is_end = self._sample(sequence, logits[num_right])
            num_known = common_prefix(sequence.ids[sequence.num_computed :], draft_ids[num_right:])
            sequence.num_computed += num_known
            num_right += num_known
            reason = "stop" if is_end else self._end_reason(sequence)
        if sequence.drafter is not None and len(draft_ids):
            self._cut(sequence)
            sequence.drafter.observe(len(draft_ids), num_right)
            self.totals.draft_tokens += len(draft_ids)
            self.totals.draft_tokens_accepted += num_right
        return reason

    def _cut(self, sequence: Sequence) -> None:
        """Forget what the slot holds beyond the sequence's own tokens."""
        assert sequence.slot is not None
        self.runner.truncate(sequence.slot, sequence.num_computed)

    def _sample(self, sequence: Sequence, logits: Logits) -> bool:
        """Choose a token; what the grammar then forces is appended unseen by the model, and computed with it.

        True when it is an end token.
        """
        request = sequence.request
        token_id = self._choose(sequence, logits)
        logprob = None
        if request.num_top_logprobs is not None:
            logprob = logprob_of(logits, token_id, request.num_top_logprobs)
        is_end = token_id in self._ends(request) or (sequence.matcher is not None and token_id in self._end_ids)
        self._append(sequence, token_id, is_end=is_end)
        self._emit(sequence, Token(token_id, logprob, is_visible=not is_end))
        if not is_end:
            for forced_id in self._jump(sequence):
                self._emit(sequence, Token(forced_id))
        return is_end

    def _end_reason(self, sequence: Sequence) -> FinishReason | None:
        """Why a choice ends here: its grammar is complete, or its limit is reached."""
        if sequence.matcher is not None and sequence.matcher.is_complete:
            return "stop"
        return "length" if sequence.num_generated >= sequence.request.limits.max_tokens else None

    def _choose(self, sequence: Sequence, logits: Logits) -> int:
        request, matcher = sequence.request, sequence.matcher
        is_too_short = sequence.num_generated < request.limits.min_tokens
        banned = self._ends(request) if is_too_short else _NOTHING
        if request.limits.ignore_eos:
            banned = banned | self._end_ids if banned else self._end_ids
        if matcher is None:
            return sequence.samplers.sample(logits, sequence.num_tokens, banned)
        # Forced tokens are left to be found here when their log-probabilities are wanted: then each needs its logits.
        if request.num_top_logprobs is not None and (forced := matcher.forced()):
            return forced[0]
        return sequence.samplers.sample(logits, sequence.num_tokens, banned, matcher.mask(), matcher.state)

    def _append(self, sequence: Sequence, token_id: int, *, is_end: bool = False) -> None:
        sequence.samplers.accept(token_id)
        sequence.append(token_id)
        self.totals.generated_tokens += 1
        if sequence.matcher is not None and not is_end:
            sequence.matcher.accept(token_id)

    def _jump(self, sequence: Sequence) -> list[int]:
        """Append the tokens that the grammar forces, as far as the limit lets them; they still have to be emitted."""
        request, matcher = sequence.request, sequence.matcher
        if matcher is None or request.num_top_logprobs is not None:
            return []
        # The last token of all needs no KV, unless it is there before the prompt is computed.
        room = request.limits.max_tokens - sequence.num_generated - (not sequence.is_prefilled)
        ends = self._ends(request)
        forced = list(takewhile(lambda token_id: token_id not in ends, matcher.forced()[: max(0, room)]))
        for token_id in forced:
            self._append(sequence, token_id)
        return forced

    def _ends(self, request: Request) -> frozenset[int]:
        if request.limits.ignore_eos:
            return request.limits.stop_token_ids
        return self._end_ids | request.limits.stop_token_ids if request.limits.stop_token_ids else self._end_ids

    def _add_prompt_logprobs(self, sequence: Sequence, first: int, logits: Logits) -> None:
        """Row i of the logits stands at position first + i and predicts the token after it."""
        num_top = sequence.request.num_prompt_logprobs
        assert num_top is not None
        if np.isnan(logits[:, 0]).any():
            raise InvalidLogits
        logits = logits[len(sequence.prompt_logprobs) - (first + 1) :]  # a preempted prompt repeats known positions
        targets = sequence.ids[len(sequence.prompt_logprobs) : sequence.num_prompt][: len(logits)]
        sequence.prompt_logprobs.extend(prompt_logprobs(logits[: len(targets)], targets, num_top))

    def _finish_prompt(self, sequence: Sequence) -> None:
        sequence.prefilled_at = self._clock()
        num_cached = sequence.num_cached_tokens or 0
        self.totals.prompt_tokens += sequence.num_prompt
        self.totals.prompt_tokens_cached += num_cached
        logprobs = tuple(sequence.prompt_logprobs) if sequence.request.num_prompt_logprobs is not None else None
        self._emit(sequence, Prefilled(num_cached, logprobs))
        for token_id in sequence.ids[sequence.num_prompt :]:  # forced before anything was sampled
            self._emit(sequence, Token(int(token_id)))

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        now = self._clock()
        started = now if sequence.started_at is None else sequence.started_at
        prefilled = now if sequence.prefilled_at is None else sequence.prefilled_at
        timings = Timings(
            queued_ms=(started - sequence.arrived_at) * 1000,
            prompt_ms=(prefilled - started) * 1000,
            predicted_ms=(now - prefilled) * 1000,
        )
        drafter = sequence.drafter if sequence.request.draft_ids else None
        counts = (drafter.num_accepted, drafter.num_rejected) if drafter is not None else (0, 0)
        self._emit(sequence, Finished(reason, timings, *counts))
        self._close(sequence)

    def _fail(self, request_id: str, error: PieError) -> None:
        """One failing choice fails its siblings; the request hears of it once."""
        group = self._groups.get(request_id)
        if group is None:  # a sibling failed before
            return
        self.totals.failures += 1
        first = next((sequence for sequence in group.sequences if not sequence.is_over), group.sequences[0])
        self._emit(first, Failed(error))
        for sequence in group.sequences:
            self._close(sequence, keep=False)

    def _close(self, sequence: Sequence, *, keep: bool = True) -> None:
        sequence.is_over = True
        self.scheduler.release(sequence, keep=keep)
        group = self._groups.get(sequence.request.id)
        if group is not None and group.is_over:
            del self._groups[sequence.request.id]

    def _emit(self, sequence: Sequence, output: Output) -> None:
        self._outbox.append(Delivery(sequence.request.id, sequence.choice, output))

    def check(self) -> None:
        """Raise if anything is accounted for wrongly; at idle nothing may be held."""
        self.scheduler.check()
        live = [sequence for group in self._groups.values() for sequence in group.sequences if not sequence.is_over]
        assert len(live) == len(self.scheduler.running) + len(self.scheduler.waiting), "a lost sequence"


def _row(grant: Grant) -> Row:
    sequence, num_tokens, draft_ids = grant
    assert sequence.slot is not None
    ids = sequence.ids[sequence.num_computed : sequence.num_computed + num_tokens]
    if len(draft_ids):
        return Row(sequence.slot, sequence.num_computed, np.concatenate([ids, draft_ids]), 1 + len(draft_ids))
    if sequence.wants_prompt_logprobs:
        num_logits = num_tokens
    else:
        num_logits = int(sequence.num_computed + num_tokens == sequence.num_tokens)
    return Row(sequence.slot, sequence.num_computed, ids, num_logits)


def _is_wide(grant: Grant) -> bool:
    """Whether a decoding row computes more than its one token."""
    return len(grant.draft_ids) > 0 or (grant.sequence.is_decoding and grant.sequence.num_pending > 1)
