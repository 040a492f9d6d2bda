"""Guesses how choices go on with a second, smaller model of the same vocabulary, all choices in one pass a token.

It draws with the choice's own sampler and number, so it is right wherever the models agree. It decides nothing: the
model that answers checks every guess (`StepEngine._extend_along`). What fails here ends the drafts, never a request.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from proxy_inference_engine.cache.prefix import common_prefix
from proxy_inference_engine.cache.slots import Slots
from proxy_inference_engine.engine.drafts.payoff import Payoff
from proxy_inference_engine.engine.drafts.speculation import NO_DRAFT, Trust
from proxy_inference_engine.engine.passes import Pace
from proxy_inference_engine.engine.sequence import MAX_JUMP, Grant, Sequence, plain_work
from proxy_inference_engine.engine.stats import Stats
from proxy_inference_engine.runners.base import Logits, Row, Runner, TokenIds
from proxy_inference_engine.types import Request, Shortcut

_log = logging.getLogger(__name__)

_DRAFTED = Shortcut(
    *("id", "tenant", "prompt_ids", "sampling", "state_sampling", "limits", "num_choices"),
    *("num_top_logprobs", "num_prompt_logprobs", "constraint", "pin_seconds", "priority"),
    "adapter",  # it guesses without one
)
_MIN_DRAFT = 2
_HEADROOM = 128  # tokens a choice should be able to write before it outgrows its slot


class ModelDrafter:
    """One choice in the draft model: its slot there, what that holds, and the newest guess.

    The slot holds the first `num_held` of the choice's first `num_known` tokens and the guess after them.
    """

    def __init__(self, drafting: "Drafting", max_tokens: int) -> None:
        self._drafting = drafting
        self.trust = Trust(max_tokens, _MIN_DRAFT)
        self.slot: int | None = None
        self.num_known = 0
        self.num_held = 0
        self.guess: list[int] = []
        self.num_accepted = 0
        self.num_rejected = 0

    def propose(self, ids: TokenIds, max_tokens: int) -> TokenIds:
        is_new = len(ids) == self.num_known
        return np.array(self.guess[: max(0, max_tokens)], np.int32) if is_new and self.guess else NO_DRAFT

    def observe(self, num_proposed: int, num_right: int) -> None:
        self.num_accepted += num_right
        self.num_rejected += num_proposed - num_right
        self.trust.observe(self.num_known, num_proposed, num_right)
        self._drafting.count(num_proposed, num_right)

    def release(self) -> None:
        self._drafting.release(self)

    def follow(self, ids: TokenIds) -> None:
        """Learn what the choice's tokens are now, and how much of the slot is still right; the last is always left."""
        computed = np.array(self.guess[: max(0, self.num_held - self.num_known)], np.int32)
        num_right = self.num_known + common_prefix(ids[self.num_known :], computed)
        self.num_held = min(self.num_held, num_right, len(ids) - 1)
        self.num_known = len(ids)
        self.guess = []


class _Choice(NamedTuple):
    """A choice that is drafted in this step."""

    sequence: Sequence
    drafter: ModelDrafter
    slot: int
    length: int  # of the guess

    @property
    def num_behind(self) -> int:
        return self.drafter.num_known - self.drafter.num_held

    def advance(self, num_tokens: int) -> Row:
        """A row of the choice's next so many tokens, or of the newest of its guess; the slot then holds them."""
        drafter, start = self.drafter, self.drafter.num_held
        is_guess = start >= drafter.num_known
        ids = np.array(drafter.guess[-1:], np.int32) if is_guess else self.sequence.ids_from(start, num_tokens)
        drafter.num_held += num_tokens
        return Row(self.slot, start, ids, int(drafter.num_held >= drafter.num_known))


class _CaughtUp(NamedTuple):
    ready: list[tuple[_Choice, Logits]]  # who is through, with what the model expects next
    read_s: float | None  # for long texts, of which not all may be through; None: there were none


class Drafting:
    """The draft model of one engine, which owns it.

    Each size of batch, to the next power of two, learns for itself whether drafts pay.
    """

    def __init__(
        self, runner: Runner, max_tokens: int, step_target_s: float, clock: Callable[[], float], stats: Stats
    ) -> None:
        self._runner: Runner | None = runner  # None: it has failed
        self._max_tokens = max_tokens
        self._clock = clock
        self._slots = Slots(runner.lanes)
        # Prompts are read on the side of steps that carry streams, so they get half of one, alone or not.
        self._pace = Pace(step_target_s / 2, step_target_s / 2)
        self._payoffs: defaultdict[int, Payoff] = defaultdict(Payoff)
        self._spent_s: float | None = None  # on drafts for the pass to come; None: none were made
        self._round: Payoff | None = None  # what hears of guesses that were right
        self._stats = stats

    def drafter(self, request: Request) -> ModelDrafter | None:
        """What guesses for one choice; None where it has images, or whatever else is nothing to this model."""
        if self._runner is None or not _DRAFTED.takes(request):
            return None
        return ModelDrafter(self, self._max_tokens)

    def propose(self, running: list[Sequence]) -> None:
        """Guess for those that run, before their next pass; not beside prompts, for which everyone waits already."""
        self._spent_s = None
        runner = self._runner
        if runner is None or not running or not all(sequence.is_decoding for sequence in running):
            return
        payoff = self._payoff(len(running))
        if not payoff.allows():
            return
        began = self._clock()
        try:
            choices = self._choices(running)
            if not choices or self._runner is None:
                return
            read_s = self._guess(runner, choices)
            if read_s is not None:
                payoff.invest(read_s)
            if any(choice.drafter.guess for choice in choices):
                self._spent_s = self._clock() - began - (read_s or 0.0)
        except Exception:
            self._give_up()

    def observe(self, grants: list[Grant], seconds: float) -> None:
        """Learn what a pass cost; `count` says how many of its guesses were right."""
        self._round = None
        if self._runner is None or not all(grant.sequence.is_decoding for grant in grants):
            return
        payoff = self._payoff(len(grants))
        if self._spent_s is not None:
            self._round = payoff
            num_guessed = sum(len(grant.draft_ids) for grant in grants)
            payoff.observe_round(len(grants), num_guessed, self._spent_s + seconds)
        elif plain_work(grants) is not None:
            payoff.observe_plain(len(grants), seconds)

    def count(self, num_proposed: int, num_right: int) -> None:
        self._stats.total_model_draft_tokens += num_proposed
        self._stats.total_model_draft_tokens_accepted += num_right
        if self._round is not None:
            self._round.gain(num_right)

    def release(self, drafter: ModelDrafter) -> None:
        """Free a choice's slot. Idempotent."""
        slot, drafter.slot = drafter.slot, None
        drafter.num_held = drafter.num_known = 0
        drafter.guess = []
        if slot is None or self._runner is None:
            return
        self._slots.free(slot)
        try:
            self._runner.release(slot)
        except Exception:
            self._give_up()

    def reset(self) -> None:
        """No choice has a slot here."""
        self._spent_s, self._round = None, None
        if self._runner is None:
            return
        self._slots = Slots(self._runner.lanes)
        try:
            for slot in range(self._slots.num_slots):
                self._runner.release(slot)
        except Exception:
            self._give_up()

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def check(self, running: Iterable[Sequence]) -> None:
        """Raise if slots are held by nobody that runs."""
        drafters = [sequence.drafter for sequence in running if isinstance(sequence.drafter, ModelDrafter)]
        held = [drafter.slot for drafter in drafters if drafter.slot is not None]
        assert self._runner is None or len(set(held)) == len(held) == self._slots.num_held, "a lost slot of the draft"

    def _payoff(self, num_rows: int) -> Payoff:
        return self._payoffs[(num_rows - 1).bit_length()]

    def _give_up(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            _log.exception("the draft model failed; from now on there are no drafts")
            with suppress(Exception):
                runner.close()

    def _choices(self, running: list[Sequence]) -> list[_Choice]:
        """The choices to guess for, by slot, and how far: none whose drafts were bad of late, or that finds no slot."""
        choices = []
        for sequence in running:
            drafter = sequence.drafter
            if not isinstance(drafter, ModelDrafter) or not sequence.is_prefilled:
                continue
            room = sequence.max_length - sequence.num_tokens - 1  # one token is chosen anyway
            length = min(drafter.trust.length(sequence.num_tokens), room)
            slot = self._place(drafter, sequence, length) if length > 0 else None
            if slot is not None:
                drafter.follow(sequence.ids)
                choices.append(_Choice(sequence, drafter, slot, length))
        return sorted(choices, key=lambda choice: choice.slot)

    def _place(self, drafter: ModelDrafter, sequence: Sequence, length: int) -> int | None:
        """A slot with room for a guess; one that was outgrown is left, and its tokens are computed again."""
        num_needed = sequence.num_tokens + length
        if drafter.slot is None or self._slots.capacity(drafter.slot) < num_needed:
            self.release(drafter)
            lane = self._slots.lane_with_room(min(sequence.max_length, num_needed + _HEADROOM))
            slot = self._slots.allocate(lane)
            if slot is not None and self._slots.capacity(slot) < num_needed:
                self._slots.free(slot)
                slot = None
            drafter.slot = slot
        return drafter.slot

    def _guess(self, runner: Runner, choices: list[_Choice]) -> float | None:
        """Guess for all whose text the model has read; returns the seconds that went into reading long texts."""
        ready, read_s = self._catch_up(runner, choices)
        while ready:
            going = [choice for choice, logits in ready if _draw(choice, logits)]
            logits = runner.forward([choice.advance(1) for choice in going]) if going else []
            ready = list(zip(going, logits, strict=True))
        return read_s

    def _catch_up(self, runner: Runner, choices: list[_Choice]) -> "_CaughtUp":
        """Let the draft model read what the choices have more than their slots."""
        for choice in choices:
            runner.truncate(choice.slot, choice.drafter.num_held)
        granted = self._grant(runner, choices)
        rows = [choice.advance(num_tokens) for choice, num_tokens in granted]
        began = self._clock()
        logits = runner.forward(rows)
        seconds = self._clock() - began
        far = [len(row.ids) for row in rows if not row.num_logits or len(row.ids) > MAX_JUMP]
        self._pace.observe(len(rows) - len(far), sum(far), seconds)
        ready = [(choice, last) for (choice, _), last in zip(granted, logits, strict=True) if len(last)]
        return _CaughtUp(ready, seconds * sum(far) / sum(len(row.ids) for row in rows) if far else None)

    def _grant(self, runner: Runner, choices: list[_Choice]) -> list[tuple[_Choice, int]]:
        """How much to read of each text: all of those nearly read, then as much of long ones as a step has time for."""
        by_length = sorted(choices, key=lambda choice: choice.num_behind)
        num_near = sum(choice.num_behind <= MAX_JUMP for choice in choices)
        room = runner.max_batch_tokens
        budget = self._pace.chunk(num_near, room)
        granted = []
        for choice in by_length:
            num_tokens = min(choice.num_behind, room if choice.num_behind <= MAX_JUMP else min(room, budget))
            if num_tokens > 0:
                granted.append((choice, num_tokens))
                room -= num_tokens
                budget -= num_tokens if choice.num_behind > MAX_JUMP else 0
        return sorted(granted, key=lambda grant: grant[0].slot)


def _draw(choice: _Choice, logits: Logits) -> bool:
    """Guess one more token as the choice would draw it; whether another may follow."""
    sequence, drafter, _, length = choice
    position = sequence.num_tokens + len(drafter.guess)
    token_id = sequence.samplers.sample(logits[-1], position, sequence.banned)
    drafter.guess.append(token_id)
    return len(drafter.guess) < length and token_id not in sequence.ends
