"""The engine: `step` is the whole of it. Read this first.

Single-threaded, with the clock passed in, so a simulator can drive it. Knows token ids, not text. Where a device
chooses tokens, a step hands out what was chosen in the one before: the device computes while the host does the rest.
"""

import logging
import time
from collections.abc import Callable
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from proxy_inference_engine.cache.prefix import PrefixCache, common_prefix
from proxy_inference_engine.engine.choosing import Choosing
from proxy_inference_engine.engine.deferral import Deferral
from proxy_inference_engine.engine.drafting import Drafting
from proxy_inference_engine.engine.echo import add_prompt_logprobs
from proxy_inference_engine.engine.pace import Pace
from proxy_inference_engine.engine.rows import make_row, plain_work
from proxy_inference_engine.engine.scheduler import Grant, Scheduler
from proxy_inference_engine.engine.sequence import Group, Sequence
from proxy_inference_engine.engine.speculation import make_drafter
from proxy_inference_engine.engine.totals import Totals
from proxy_inference_engine.errors import ContextLengthExceeded, EngineFailure, PieError
from proxy_inference_engine.runners.base import Logits, Runner
from proxy_inference_engine.sampling.logprobs import logprob_of
from proxy_inference_engine.sampling.sampler import InvalidLogits
from proxy_inference_engine.sampling.samplers import Samplers
from proxy_inference_engine.state_machine.matcher import GrammarFailure
from proxy_inference_engine.types import (
    Drafted,
    Failed,
    Finished,
    FinishReason,
    Logprob,
    Output,
    Prefilled,
    Request,
    Token,
)

_log = logging.getLogger(__name__)


class Delivery(NamedTuple):
    """One output on its way to the request that waits for it."""

    request_id: str
    choice: int
    output: Output


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
        self._choosing = Choosing(runner.tokenizer.end_ids, runner.chooser)
        self._deferral = Deferral(runner.chooser, self._fail_each)
        self._forwarded_at: float | None = None  # the end of the last pass, where passes follow each other
        self._ngram_draft_tokens = ngram_draft_tokens
        self.drafting = Drafting(None, 0, step_target_s, clock)

    def draft_with(self, runner: Runner, max_tokens: int) -> None:
        """Guess ahead with a smaller model of the same vocabulary, which is the engine's from now on."""
        self.drafting = Drafting(runner, max_tokens, self.pace.target_s, self._clock)

    def close(self) -> None:
        self.drafting.close()
        self.runner.close()

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
        drafter = self.drafting.drafter(request) or make_drafter(request, self._ngram_draft_tokens)
        if not self.runner.can_splice:  # a wrong guess has to be forgotten, which only memory that can be cut does
            drafter = None
        self._arrivals += 1
        sequence = Sequence(request, choice, samplers, self._arrivals, self._clock(), matcher, drafter)
        self._choosing.prepare(sequence)
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
        """One turn: schedule, forward, choose, hand out."""
        started = self._clock()
        self.drafting.propose(self.scheduler.running)
        grants = self.scheduler.schedule()
        for sequence, _, _ in grants:
            if sequence.started_at is None:
                sequence.started_at = started
        logits = self._forward(grants) if grants else []
        self._land(grants)
        self._advance_each(grants, logits)
        self._take_off()
        if grants:
            self.totals.steps += 1
            self.totals.step_seconds += self._clock() - started
        else:
            self._forwarded_at = None
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
                logits = self.runner.forward([make_row(grant) for grant in grants])
            except Exception:
                _log.exception("forward pass failed (attempt %d)", attempt)
                if not self._take_back(grants):
                    break
                continue
            self._account(grants, began)
            return logits
        self.num_forward_failures += 1
        self._fail_each([grant.sequence for grant in grants])
        return []

    def _account(self, grants: list[Grant], began: float) -> None:
        now = self._clock()
        self.totals.forward_seconds += now - began
        self.num_forward_failures = 0
        if self.runner.chooser is None:
            self._observe(grants, now - began)
        elif self._forwarded_at is not None:  # at most one pass waits for another, so this is what one takes
            self._observe(grants, now - self._forwarded_at)
        self._forwarded_at = now

    def _observe(self, grants: list[Grant], seconds: float) -> None:
        """Tell the pace what a pass cost; one with jumps or guesses in it says little of rows or of prompts."""
        self.drafting.observe(grants, seconds)
        work = plain_work(grants)
        if work is not None:
            self.pace.observe(work.num_decoding, work.num_prompt_tokens, seconds)

    def _take_back(self, grants: list[Grant]) -> bool:
        """Forget what a failed pass may have left in its slots; False where the model's memory can't."""
        try:
            for grant in grants:
                self._cut(grant.sequence)
        except Exception:
            _log.exception("a failed pass could not be taken back")
            return False
        return True

    def _advance_each(self, grants: list[Grant], logits: list[Logits]) -> None:
        for grant, rows in zip(grants, logits, strict=False):
            sequence = grant.sequence
            if sequence.is_over:  # a sibling failed in this very step, or what the device chose was its end
                continue
            try:
                self._advance(grant, rows)
            except Exception as error:
                self._fail_alone(sequence.request.id, error)

    def _fail_alone(self, request_id: str, error: Exception) -> None:
        """The border of one request: whatever goes wrong in it ends that request and no other."""
        match error:
            case InvalidLogits():
                failure = EngineFailure("the model's output is not a number", code="model_output_invalid")
            case GrammarFailure():
                _log.warning("the grammar of request %s failed: %s", request_id, error)
                failure = EngineFailure("the grammar is too complex to go on", code="grammar_failed")
            case _:
                _log.error("request %s failed", request_id, exc_info=error)
                failure = EngineFailure("this request failed inside the engine")
        self._fail(request_id, failure)

    def _advance(self, grant: Grant, logits: Logits) -> None:
        """Commit what was computed; when all of it was, choose what comes next."""
        sequence, first = grant.sequence, grant.sequence.num_computed
        sequence.num_computed = first + grant.num_tokens
        if sequence.prompt_logprobs and sequence.wants_prompt_logprobs:
            add_prompt_logprobs(sequence, first, np.asarray(logits))
        if sequence.num_computed < sequence.num_tokens:
            self.scheduler.snapshot(sequence)
            return
        if sequence.prefilled_at is None:
            self._finish_prompt(sequence)
        reason = sequence.end_reason
        want = self._choosing.defer(sequence, logits) if reason is None else None
        if want is not None:
            self._deferral.want(sequence, want)
            return
        reason = reason or self._extend(grant, np.asarray(logits))
        if reason is not None:
            self._finish(sequence, reason)

    def _land(self, grants: list[Grant]) -> None:
        """Take in what the device chose in the step before; it has the grants to compute meanwhile."""
        began = self._clock()
        landed = self._deferral.land()
        self.totals.forward_seconds += self._clock() - began
        for sequence, token_id in landed:
            if sequence.is_over:
                continue
            try:
                self._settle(sequence, token_id, grants)
            except Exception as error:
                self._fail_alone(sequence.request.id, error)

    def _take_off(self) -> None:
        began = self._clock()
        self._deferral.take_off()
        self.totals.forward_seconds += self._clock() - began

    def _settle(self, sequence: Sequence, token_id: int, grants: list[Grant]) -> None:
        if token_id < 0:
            raise InvalidLogits
        sequence.settle(token_id)
        is_end = self._take(sequence, token_id)
        reason = "stop" if is_end else sequence.end_reason
        if reason is not None:
            # Its slot has what was granted already, and may be unable to forget it.
            sequence.num_computed += sum(grant.num_tokens for grant in grants if grant.sequence is sequence)
            self._finish(sequence, reason)

    def _fail_each(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            self._fail(sequence.request.id, EngineFailure("the model failed to compute this request"))

    def _extend(self, grant: Grant, logits: Logits) -> FinishReason | None:
        """Choose a token, and one more after each guessed one that was chosen too; why the choice ends, if it does."""
        sequence, _, draft_ids = grant
        logits = logits[-1 - len(draft_ids) :]  # row i stands after i guessed tokens
        num_right, reason = 0, None
        first = len(self._outbox)
        while reason is None and not sequence.num_pending:
            is_end = self._sample(sequence, logits[num_right])
            num_known = common_prefix(sequence.ids[sequence.num_computed :], draft_ids[num_right:])
            sequence.num_computed += num_known
            num_right += num_known
            reason = "stop" if is_end else sequence.end_reason
        if sequence.drafter is not None and len(draft_ids):
            self._cut(sequence)
            sequence.drafter.observe(len(draft_ids), num_right)
            self.totals.draft_tokens += len(draft_ids)
            self.totals.draft_tokens_accepted += num_right
            if sequence.request.draft_ids:
                # Before the tokens: a stop string in them ends the choice for whoever reads on.
                drafted = Drafted(sequence.drafter.num_accepted, sequence.drafter.num_rejected)
                self._outbox.insert(first, Delivery(sequence.request.id, sequence.choice, drafted))
        return reason

    def _cut(self, sequence: Sequence) -> None:
        """Forget what the slot holds beyond the sequence's own tokens."""
        assert sequence.slot is not None
        self.runner.truncate(sequence.slot, sequence.num_computed)

    def _sample(self, sequence: Sequence, logits: Logits) -> bool:
        """Choose a token here. True when it is an end token."""
        token_id = self._choosing.choose(sequence, logits)
        num_top, logprob = sequence.request.num_top_logprobs, None
        if num_top is not None:
            logprob = logprob_of(logits, token_id, num_top)
        sequence.append(token_id)
        return self._take(sequence, token_id, logprob)

    def _take(self, sequence: Sequence, token_id: int, logprob: Logprob | None = None) -> bool:
        """Hand a chosen token out; what the grammar then forces is appended unseen by the model, and computed with it.

        True when it is an end token.
        """
        is_end = token_id in sequence.ends
        matcher = None if is_end else sequence.matcher
        sequence.samplers.accept(token_id)
        if matcher is not None:
            matcher.accept(token_id)
        self.totals.generated_tokens += 1
        self._outbox.append(Delivery(sequence.request.id, sequence.choice, Token(token_id, logprob, not is_end)))
        if matcher is not None:
            for forced_id in self._jump(sequence):
                self._emit(sequence, Token(forced_id))
            matcher.prepare()
        return is_end

    def _jump(self, sequence: Sequence) -> list[int]:
        """Append the tokens that the grammar forces, as far as the limit lets them; they still have to be emitted."""
        request, matcher = sequence.request, sequence.matcher
        if matcher is None or request.num_top_logprobs is not None:
            return []
        # The last token of all needs no KV, unless it is there before the prompt is computed.
        room = request.limits.max_tokens - sequence.num_generated - (not sequence.is_prefilled)
        ends = self._choosing.ends(request)
        forced = list(takewhile(lambda token_id: token_id not in ends, matcher.forced()[: max(0, room)]))
        for token_id in forced:
            sequence.append(token_id)
            sequence.samplers.accept(token_id)
            matcher.accept(token_id)
        self.totals.generated_tokens += len(forced)
        return forced

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
        drafter = sequence.drafter if sequence.request.draft_ids else None
        counts = (drafter.num_accepted, drafter.num_rejected) if drafter is not None else (0, 0)
        self._emit(sequence, Finished(reason, sequence.timings(self._clock()), *counts))
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
        self.drafting.check(self.scheduler.running)
        live = [sequence for group in self._groups.values() for sequence in group.sequences if not sequence.is_over]
        assert len(live) == len(self.scheduler.running) + len(self.scheduler.waiting), "a lost sequence"
