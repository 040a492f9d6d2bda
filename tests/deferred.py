"""The fake runner as a device would be: it chooses tokens itself, and the host learns of them a step later."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from proxy_inference_engine.runners.base import UNREAD_ID, Logits, Row, TokenIds, Want
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.sampling.sampler import InvalidLogits, Sampler
from proxy_inference_engine.types import STEP_PARAMETERS, Sampling, Shortcut

_HONOURED = Shortcut("seed", "temperature", "top_k", "top_p", "min_p", "logit_bias", *STEP_PARAMETERS)


class DeferredPicks:
    def __init__(self, ids: list[int]) -> None:
        self.ids = ids
        self.is_read = False

    def read(self) -> TokenIds:
        assert not self.is_read, "read twice"
        self.is_read = True
        return np.array(self.ids, np.int32)


class _Drawn(Sampler):
    """Draws with the number it is given."""

    drawn = 0.0

    def number(self, position: int) -> float:
        return self.drawn


class DeferredChooser:
    def __init__(self, num_tokens: int) -> None:
        self._num_tokens = num_tokens
        self.num_chosen = 0

    def can_choose(self, sampling: Sampling) -> bool:
        return _HONOURED.takes(sampling)

    def choose(self, wants: Sequence[Want]) -> DeferredPicks:
        self.num_chosen += len(wants)
        return DeferredPicks([self._choose(want) for want in wants])

    def _choose(self, want: Want) -> int:
        sampler = _Drawn(want.sampling, choice=0, prompt_ids=(), num_tokens=self._num_tokens)
        sampler.drawn = want.number
        banned: Collection[int] = want.banned
        try:
            return sampler.sample(np.asarray(want.logits)[-1], 0, banned, want.allowed)
        except InvalidLogits:
            return -1


class DeferredRunner(FakeRunner):
    """Checks that a token the host does not know is only ever the one this runner chose for that row."""

    def defer(self) -> "DeferredRunner":
        self.chooser = DeferredChooser(self.tokenizer.num_tokens)
        return self

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        return super().forward([self._known(row) for row in rows])

    def _known(self, row: Row) -> Row:
        unread = row.ids == UNREAD_ID
        assert unread.any() == (row.unread is not None) and not unread[:-1].any()
        if row.unread is None:
            return row
        assert isinstance(row.unread.picks, DeferredPicks) and not row.unread.picks.is_read
        ids = row.ids.copy()
        ids[-1] = max(0, row.unread.picks.ids[row.unread.place])
        return replace(row, ids=ids)
