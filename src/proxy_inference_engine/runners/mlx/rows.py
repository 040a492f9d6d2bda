"""What sequences add to a pass on MLX: rows that are computed alone, and short ones that go together."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import UNREAD_ID, Row, Unread
from proxy_inference_engine.runners.mlx.chooser import DevicePicks

MAX_SHORT = 32  # tokens of a row that goes with others
_WIDTHS = (1, 2, 4, 8, 16, 32)

Numbers = NDArray[np.int32]


class SlotRow(NamedTuple):
    """A row computed alone. `turn` is the rotary position of its first token: not `start` behind some images."""

    slot: int
    start: int
    ids: mx.array  # (tokens,)
    num_logits: int  # of the last positions
    compute: Callable[[list[Any]], mx.array] | None = None  # logits (num_logits, vocabulary), extending the caches
    turn: int | None = None

    @property
    def num_tokens(self) -> int:
        return int(self.ids.shape[0])


class Batch(NamedTuple):
    """Rows that go through the model together, filled up to one width; each wants the logits of its last token."""

    ids: mx.array  # (rows, width)
    slots: Numbers  # (rows,), like all below
    starts: Numbers
    turns: Numbers
    counts: Numbers  # tokens of a row

    @property
    def num_rows(self) -> int:
        return len(self.slots)

    @property
    def width(self) -> int:
        return int(self.ids.shape[1])

    @property
    def last(self) -> Numbers:
        """The index of each row's last token that counts, among the tokens of all rows."""
        return np.arange(0, self.num_rows * self.width, self.width, dtype=np.int32) + self.counts - 1

    @property
    def end(self) -> int:
        """One more than the last position that a row writes to, filling included."""
        return int(self.starts.max()) + self.width


def make_batch(rows: Sequence[Row], first_slot: int, turns: Sequence[int] | None) -> Batch:
    """Rows of the lane that begins with `first_slot`, filled up to one width. `turns` None: the same as the starts."""
    starts = np.array([row.start for row in rows], np.int32)
    counts = np.array([len(row.ids) for row in rows], np.int32)
    width = next(width for width in _WIDTHS if width >= counts.max())
    return Batch(
        ids=_ids(rows, counts, width),
        slots=np.array([row.slot - first_slot for row in rows], np.int32),
        starts=starts,
        turns=starts if turns is None else np.array(turns, np.int32),
        counts=counts,
    )


def row_ids(row: Row) -> mx.array:
    """The ids of one row as an array on the device, (tokens,)."""
    if row.unread is None:
        return mx.array(row.ids)
    return mx.concatenate([mx.array(row.ids[:-1]), _unread_ids([row.unread])])


def ordinary_ids(num_tokens: int, count: int) -> list[int]:
    """Tokens from the middle of a vocabulary, to try out a model whose texts nobody knows.

    At its ends are control tokens, and after some of those in a row, which no text has, a model's logits are little
    more than rounding errors.
    """
    eighth = num_tokens // 8
    ids: list[int] = np.random.default_rng(0).integers(eighth, num_tokens - eighth, count).tolist()
    return ids


def _ids(rows: Sequence[Row], counts: Numbers, width: int) -> mx.array:
    unread = [row.unread for row in rows if row.unread is not None]
    if width == 1 and len(unread) == len(rows):  # nothing to upload: what was chosen is what is computed next
        return _unread_ids(unread)[:, None]
    known = np.zeros((len(rows), width), np.int32)
    for index, row in enumerate(rows):
        known[index, : counts[index]] = row.ids
    ids = mx.array(np.maximum(known, 0))
    if unread:
        places = mx.array(np.flatnonzero(known == UNREAD_ID).astype(np.int32))
        flat = ids.reshape(-1)
        flat[places] = _unread_ids(unread)
        ids = flat.reshape(ids.shape)
    return ids


def _unread_ids(unread: Sequence[Unread]) -> mx.array:
    """Ids that the device chose. Where logits were no numbers any token will do: its answer is thrown away."""
    picks = unread[0].picks
    assert isinstance(picks, DevicePicks) and all(each.picks is picks for each in unread)
    places = [each.place for each in unread]
    chosen = picks.array
    if places != list(range(chosen.shape[0])):
        chosen = chosen[mx.array(places)]
    return mx.maximum(chosen, 0)
