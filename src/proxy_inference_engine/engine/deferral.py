"""Tokens that a device chooses: ordered in one step, read in the next, so that it never waits for the host.

An engine has this only where its runner has a chooser.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple, get_args

from proxy_inference_engine.engine.sequence import Sequence, banned_ids
from proxy_inference_engine.errors import ENDINGS
from proxy_inference_engine.runners.base import Chooser, Logits, Picks, Unread, Want
from proxy_inference_engine.types import State

_log = logging.getLogger(__name__)

_STATES: tuple[State, ...] = get_args(State)


class _Order(NamedTuple):
    picks: Picks
    sequences: list[Sequence]


class Deferral:
    """Tokens that a device chooses: at most one order is under way. `on_lost` hears whose could not be chosen."""

    def __init__(self, chooser: Chooser, on_lost: Callable[[list[Sequence]], None]) -> None:
        self._chooser = chooser
        self._on_lost = on_lost
        self._wanted: list[tuple[Sequence, Want]] = []
        self._order: _Order | None = None

    def prepare(self, sequence: Sequence) -> None:
        """Work out in which states the device chooses a sequence's tokens: those whose sampling it knows.

        None where guesses or log-probabilities need the logits on the host.
        """
        if sequence.drafter is None and not sequence.wants_logits:
            samplings = {state: sequence.samplers.of(state).sampling for state in _STATES}
            can_choose = self._chooser.can_choose
            sequence.deferred_states = frozenset(state for state in _STATES if can_choose(samplings[state]))

    def want(self, sequence: Sequence, logits: Logits) -> bool:
        """Note a sequence's next token for the order of this step; False where the device can't choose it."""
        matcher = sequence.matcher
        state: State = "text" if matcher is None else matcher.state
        if state not in sequence.deferred_states:
            return False
        sampler = sequence.samplers.of(state)
        sampling = sampler.sampling
        number = sampler.number(sequence.num_tokens) if sampling.temperature > 0 else 0.0
        banned = banned_ids(sequence) if sequence.early_banned else sequence.banned
        want = Want(logits, sampling, number, banned, None if matcher is None else matcher.mask())
        self._wanted.append((sequence, want))
        return True

    def order(self) -> None:
        """Have the device choose what is wanted. Each sequence gets a token that nobody knows yet."""
        wanted, self._wanted = self._wanted, []
        wanted = [(sequence, want) for sequence, want in wanted if not sequence.is_over]
        if not wanted:
            return
        sequences = [sequence for sequence, _ in wanted]
        try:
            picks = self._chooser.choose([want for _, want in wanted])
        except ENDINGS:
            raise
        except BaseException:
            _log.exception("the device could not choose")
            self._on_lost(sequences)
            return
        for index, sequence in enumerate(sequences):
            sequence.append_unread(Unread(picks, index))
        self._order = _Order(picks, sequences)

    def reset(self) -> None:
        """Nothing is wanted, and what was ordered is not read."""
        self._wanted, self._order = [], None

    def read(self) -> list[tuple[Sequence, int]]:
        """Wait for what was ordered in the step before; the device has the next pass to compute meanwhile.

        Each sequence with its token's id; that is below 0 where the logits were no numbers.
        """
        order, self._order = self._order, None
        if order is None:
            return []
        try:
            token_ids = order.picks.read()
        except ENDINGS:
            raise
        except BaseException:
            _log.exception("what the device computed could not be read")
            self._on_lost(order.sequences)
            return []
        return list(zip(order.sequences, token_ids.tolist(), strict=True))
