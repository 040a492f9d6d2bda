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
from proxy_inference_engine.engine.deferral import Deferral
from proxy_inference_engine.engine.drafts.draft_model import Drafting
from proxy_inference_engine.engine.drafts.speculation import Drafter, Guesser
from proxy_inference_engine.engine.failures import failure_of, waited_too_long
from proxy_inference_engine.engine.passes import Pace, Passes
from proxy_inference_engine.engine.scheduler import Scheduler
from proxy_inference_engine.engine.sequence import Choosing, Grant, Group, Samplers, Sequence, plain_work, scored
from proxy_inference_engine.engine.stats import Stats
from proxy_inference_engine.errors import ENDINGS, ContextLengthExceeded, EngineFailure, PieError
from proxy_inference_engine.runners.base import Logits, Runner
from proxy_inference_engine.sampling.sampler import InvalidLogits
from proxy_inference_engine.types import (
    IDLE_PRIORITY,
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
    """Continuous batching over one runner."""

    def __init__(
        self,
        runner: Runner,
        *,
        max_cache_bytes: int,
        step_target_s: float = 0.2,
        queue_timeout_s: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.runner = runner
        self.cache = PrefixCache(max_cache_bytes, can_splice=runner.can_splice, clock=clock)
        self.pace = Pace(target_s=step_target_s, alone_target_s=5 * step_target_s)
        self.scheduler = Scheduler(runner, self.cache, self.pace)
        self.stats = Stats()
        self.passes = Passes(runner, self.stats, clock, self._observe, self._fail_each)
        self._groups: dict[str, Group] = {}
        self._outbox: list[Delivery] = []
        self._arrivals = 0
        self._clock = clock
        self._queue_timeout_s = queue_timeout_s
        self._choosing = Choosing(runner.tokenizer.end_ids)
        self._deferral = None if runner.chooser is None else Deferral(runner.chooser, self._fail_each)
        self.drafting: Drafting | None = None

    def draft_with(self, runner: Runner, max_tokens: int) -> None:
        """Guess ahead with a smaller model of the same vocabulary, which is the engine's from now on."""
        self.drafting = Drafting(runner, max_tokens, self.pace.target_s, self._clock, self.stats)

    def close(self) -> None:
        if self.scheduler.disk is not None:  # still, where it did not end as it should
            self.scheduler.disk.close()
        if self.drafting is not None:
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
        """Queue every choice of a request. Raises ContextLengthExceeded for one that can never fit."""
        num_needed = len(request.prompt_ids) + max(1, request.limits.max_tokens)
        if num_needed > self.context_tokens + 1:  # the last sampled token needs no KV
            message = f"the request needs {num_needed} tokens; a sequence can have {self.context_tokens} here"
            raise ContextLengthExceeded(message)
        try:
            sequences = [self._make_sequence(request, choice) for choice in range(request.num_choices)]
        except ENDINGS:
            raise
        except BaseException:
            _log.exception("request %s could not be set up", request.id)
            raise EngineFailure("this request failed inside the engine") from None
        self._groups[request.id] = Group(request, sequences)
        for sequence in sequences:
            self.scheduler.add(sequence)

    def _make_sequence(self, request: Request, choice: int) -> Sequence:
        samplers = Samplers(request, choice, self.runner.tokenizer.num_tokens)
        matcher = None if request.constraint is None else request.constraint.start()
        self._arrivals += 1
        drafter = self._make_drafter(request)
        sequence = Sequence(request, choice, samplers, self._arrivals, self._clock(), matcher, drafter)
        self._choosing.prepare(sequence)
        if self._deferral is not None:
            self._deferral.prepare(sequence)
        self._jump(sequence)
        return sequence

    def _make_drafter(self, request: Request) -> Guesser | None:
        """What guesses ahead for one choice: the client's own draft, or else the draft model."""
        # A wrong guess has to be forgotten, which only memory that can be cut does; idle time is no time to save.
        if not self.runner.can_splice or request.priority >= IDLE_PRIORITY:
            return None
        if request.draft_ids:
            return Drafter(request.draft_ids, len(request.prompt_ids))
        return None if self.drafting is None else self.drafting.drafter(request)

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
        if self.drafting is not None:
            self.drafting.propose(self.scheduler.running)
        if self._queue_timeout_s is not None and self.scheduler.waiting:
            self._end_waits(self._queue_timeout_s)
        grants = self.scheduler.schedule()
        for sequence, _, _ in grants:
            if sequence.started_at is None:
                sequence.started_at = started
        logits = self.passes.compute(grants) if grants else []
        if self._deferral is not None:
            self._read(self._deferral, grants)
        self._advance_each(grants, logits)
        if self._deferral is not None:
            self._order(self._deferral)
        if grants:
            self.stats.total_steps += 1
            self.stats.total_step_seconds += self._clock() - started
        else:
            self.passes.pause()
        delivered, self._outbox = self._outbox, []
        return delivered

    def fail_all(self, error: PieError) -> list[Delivery]:
        """End every request with an error: the thread is about to stop."""
        for request_id in list(self._groups):
            self._fail(request_id, error)
        delivered, self._outbox = self._outbox, []
        return delivered

    def reset(self) -> None:
        """Forget every request and all KV, whatever state a failure left them in. Raises what the runner raises."""
        self._groups, self._outbox = {}, []
        self.cache.reset()
        self.scheduler.reset()
        self.passes.pause()
        if self._deferral is not None:
            self._deferral.reset()
        if self.drafting is not None:
            self.drafting.reset()

    def _observe(self, grants: list[Grant], seconds: float) -> None:
        """Tell the pace what a pass cost; one with jumps or guesses in it says little of rows or of prompts."""
        if self.drafting is not None:
            self.drafting.observe(grants, seconds)
        work = plain_work(grants)
        if work is not None:
            self.pace.observe(work.num_decoding, work.num_prompt_tokens, seconds)

    def _advance_each(self, grants: list[Grant], logits: list[Logits]) -> None:
        for grant, rows in zip(grants, logits, strict=False):
            sequence = grant.sequence
            if sequence.is_over:  # a sibling failed in this very step, or what the device chose was its end
                continue
            try:
                self._advance(grant, rows)
            except ENDINGS:
                raise
            except BaseException as error:
                self._fail_alone(sequence.request.id, error)

    def _fail_alone(self, request_id: str, error: BaseException) -> None:
        """The border of one request: whatever goes wrong in it ends that request and no other."""
        self._fail(request_id, failure_of(error, request_id))

    def _end_waits(self, timeout_s: float) -> None:
        """Who has waited so long for a slot waits no longer, unless another choice of the same request has one."""
        for sequence in self.scheduler.waiting.unbegun(self._clock() - timeout_s):
            group = self._groups.get(sequence.request.id)
            if group is not None and all(other.started_at is None for other in group.sequences):
                self._fail(sequence.request.id, waited_too_long(timeout_s))

    def _advance(self, grant: Grant, logits: Logits) -> None:
        """Commit what was computed; when all of it was, choose what comes next."""
        sequence, first = grant.sequence, grant.sequence.num_computed
        sequence.num_computed = first + grant.num_tokens
        if sequence.prompt_logprobs and sequence.wants_prompt_logprobs:
            sequence.add_prompt_logprobs(first, np.asarray(logits))
        if sequence.num_computed < sequence.num_tokens:
            self.scheduler.snapshot(sequence)
            return
        if sequence.prefilled_at is None:
            self._finish_prompt(sequence)
        reason = sequence.end_reason
        if reason is None:
            if self._deferral is not None and self._deferral.want(sequence, logits):
                return
            reason = self._extend(grant, np.asarray(logits))
        if reason is not None:
            self._finish(sequence, reason)

    def _read(self, deferral: Deferral, grants: list[Grant]) -> None:
        """Take in what the device chose in the step before, while it computes the grants of this one."""
        began = self._clock()
        chosen = deferral.read()
        self.stats.total_forward_seconds += self._clock() - began
        for sequence, token_id in chosen:
            if sequence.is_over:
                continue
            try:
                self._settle(sequence, token_id, grants)
            except ENDINGS:
                raise
            except BaseException as error:
                self._fail_alone(sequence.request.id, error)

    def _order(self, deferral: Deferral) -> None:
        """Have the device choose what this step leaves to it."""
        began = self._clock()
        deferral.order()
        self.stats.total_forward_seconds += self._clock() - began

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
        """Choose a token; why the choice ends, if it does."""
        if len(grant.draft_ids):
            return self._extend_along(grant, logits)
        is_end = self._sample(grant.sequence, logits[-1])
        return "stop" if is_end else grant.sequence.end_reason

    def _extend_along(self, grant: Grant, logits: Logits) -> FinishReason | None:
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
        self.passes.cut(sequence)
        drafter = sequence.drafter
        assert drafter is not None
        drafter.observe(len(draft_ids), num_right)
        self.stats.total_draft_tokens += len(draft_ids)
        self.stats.total_draft_tokens_accepted += num_right
        if sequence.request.draft_ids:
            # Before the tokens: a stop string in them ends the choice for whoever reads on.
            drafted = Drafted(drafter.num_accepted, drafter.num_rejected)
            self._outbox.insert(first, Delivery(sequence.request.id, sequence.choice, drafted))
        return reason

    def _sample(self, sequence: Sequence, logits: Logits) -> bool:
        """Choose a token from its logits and hand it out. True when it is an end token."""
        token_id = self._choosing.choose(sequence, logits)
        logprob = scored(sequence, token_id, logits)
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
        self.stats.total_generated_tokens += 1
        self._outbox.append(Delivery(sequence.request.id, sequence.choice, Token(token_id, logprob, not is_end)))
        if matcher is not None:
            for forced_id in self._jump(sequence):
                self._emit(sequence, Token(forced_id))
            matcher.prepare()
        return is_end

    def _jump(self, sequence: Sequence) -> list[int]:
        """Append the tokens that the grammar forces, as far as the limit lets them; they still have to be emitted."""
        request, matcher = sequence.request, sequence.matcher
        if matcher is None or sequence.wants_logits:
            return []
        # The last token of all needs no KV, unless it is there before the prompt is computed.
        room = request.limits.max_tokens - sequence.num_generated - (not sequence.is_prefilled)
        ends = self._choosing.ends(request)
        forced = list(takewhile(lambda token_id: token_id not in ends, matcher.forced()[: max(0, room)]))
        for token_id in forced:
            sequence.append(token_id)
            sequence.samplers.accept(token_id)
            matcher.accept(token_id)
        self.stats.total_generated_tokens += len(forced)
        return forced

    def _finish_prompt(self, sequence: Sequence) -> None:
        sequence.prefilled_at = self._clock()
        num_cached = sequence.num_cached_tokens or 0
        self.stats.total_prompt_tokens += sequence.num_prompt
        self.stats.total_prompt_tokens_cached += num_cached
        logprobs = tuple(sequence.prompt_logprobs) if sequence.request.num_prompt_logprobs is not None else None
        self._emit(sequence, Prefilled(num_cached, logprobs, sequence.timings(sequence.prefilled_at).queued_ms))
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
        self.stats.total_failures += 1
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

    @property
    def num_kv_tokens(self) -> int:
        """How many tokens have KV in the slots. Another thread may ask: a gauge need not be exact."""
        return sum(sequence.num_computed for sequence in list(self.scheduler.running))

    @property
    def max_kv_tokens(self) -> int:
        return sum(lane.num_slots * lane.slot_tokens for lane in self.runner.lanes)

    def check(self) -> None:
        """Raise if anything is accounted for wrongly; at idle nothing may be held."""
        self.scheduler.check()
        if self.drafting is not None:
            self.drafting.check(self.scheduler.running)
        live = [sequence for group in self._groups.values() for sequence in group.sequences if not sequence.is_over]
        assert len(live) == len(self.scheduler.running) + len(self.scheduler.waiting), "a lost sequence"
