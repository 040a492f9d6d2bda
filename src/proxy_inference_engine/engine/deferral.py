"""Tokens that a device chooses: ordered in one step, read in the next, so that it never waits for the host."""

import logging
from collections.abc import Callable
from typing import NamedTuple

from proxy_inference_engine.engine.sequence import Sequence
from proxy_inference_engine.runners.base import Chooser, Picks, Unread, Want

_log = logging.getLogger(__name__)


class _Flight(NamedTuple):
    picks: Picks
    sequences: list[Sequence]


class Deferral:
    """At most one order is under way. `on_lost` hears whose tokens could not be chosen."""

    def __init__(self, chooser: Chooser | None, on_lost: Callable[[list[Sequence]], None]) -> None:
        self._chooser = chooser
        self._on_lost = on_lost
        self._wanted: list[tuple[Sequence, Want]] = []
        self._flight: _Flight | None = None

    def want(self, sequence: Sequence, want: Want) -> None:
        self._wanted.append((sequence, want))

    def take_off(self) -> None:
        """Order what is wanted. Each sequence gets a token that nobody knows yet."""
        wanted, self._wanted = self._wanted, []
        wanted = [(sequence, want) for sequence, want in wanted if not sequence.is_over]
        if not wanted or self._chooser is None:
            return
        sequences = [sequence for sequence, _ in wanted]
        try:
            picks = self._chooser.choose([want for _, want in wanted])
        except Exception:
            _log.exception("the device could not choose")
            self._on_lost(sequences)
            return
        for index, sequence in enumerate(sequences):
            sequence.append_unread(Unread(picks, index))
        self._flight = _Flight(picks, sequences)

    def land(self) -> list[tuple[Sequence, int]]:
        """Wait for what was ordered in the step before; the device has the next pass to compute meanwhile.

        Each sequence with its token's id; that is below 0 where the logits were no numbers.
        """
        flight, self._flight = self._flight, None
        if flight is None:
            return []
        try:
            token_ids = flight.picks.read()
        except Exception:
            _log.exception("what the device computed could not be read")
            self._on_lost(flight.sequences)
            return []
        return list(zip(flight.sequences, token_ids.tolist(), strict=True))
