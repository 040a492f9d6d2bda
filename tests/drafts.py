"""The fake runner as a draft model: it agrees with the fake runner most of the time, and never says some tokens."""

from collections.abc import Callable, Sequence

import numpy as np

from proxy_inference_engine.runners.base import Lane, Logits, Row
from proxy_inference_engine.runners.fake import FakeRunner


class DraftRunner(FakeRunner):
    """One in `wrong_every` positions is guessed wrong; 0: none. `never` is a token that it does not guess."""

    def __init__(
        self,
        *,
        wrong_every: int = 0,
        never: int | None = None,
        lanes: Sequence[Lane] = (Lane(16, 1024), Lane(1, 8192)),
        step_seconds: Callable[[int], float] | None = None,
        sleep: Callable[[float], None] = lambda seconds: None,
        on_forward: Callable[[Sequence[Row]], None] | None = None,
        end_bias: float = 0.0,
    ) -> None:
        super().__init__(lanes=lanes, step_seconds=step_seconds, sleep=sleep, on_forward=on_forward, end_bias=end_bias)
        self._wrong_every = wrong_every
        self._never = never
        self.is_closed = False

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        assert not self.is_closed, "a pass of a closed model"
        return [self._spoil(row, logits) for row, logits in zip(rows, super().forward(rows), strict=True)]

    def _spoil(self, row: Row, logits: Logits) -> Logits:
        if self._never is not None and len(logits):
            logits[:, self._never] = -100.0
        is_wrong = self._wrong_every and len(logits) and int(row.ids.sum()) % self._wrong_every == 0
        return np.roll(logits, 1, axis=1) if is_wrong else logits

    def num_held_slots(self) -> int:
        return sum(len(slot.ids) > 0 for slot in self._slots)

    def close(self) -> None:
        super().close()
        self.is_closed = True
