"""The seam to a model: weights, tokenizer, and the KV memory of *running* sequences.

A runner knows slots and token ids, never requests. Slots are numbered lane by lane: lane 0 holds slots
0..num_slots-1, lane 1 the next ones. Everything but `tokenizer` belongs to the engine thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

TokenIds = NDArray[np.int32]
Logits = NDArray[np.float32]


class Lane(NamedTuple):
    """A group of slots of one size that are computed together."""

    num_slots: int
    slot_tokens: int  # tokens one slot can hold


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence's part of a forward pass: `ids` at positions start, start + 1, …"""

    slot: int
    start: int
    ids: TokenIds
    num_logits: int  # logits wanted for this many of the last positions


class Segment(Protocol):
    """The KV of a run of tokens, outside any slot. Belongs to whoever holds it until `free`."""

    @property
    def num_tokens(self) -> int: ...

    @property
    def num_bytes(self) -> int: ...

    def split(self, at: int) -> tuple["Segment", "Segment"]:
        """Divide into the first `at` tokens and the rest; this segment is freed."""
        ...

    def free(self) -> None: ...


class Tokenizer(Protocol):
    """Text to ids and back. Safe to call from any thread."""

    @property
    def num_tokens(self) -> int:
        """Size of the vocabulary."""
        ...

    @property
    def bos_id(self) -> int | None:
        """The token every raw prompt starts with, or None where the model wants none."""
        ...

    @property
    def end_ids(self) -> frozenset[int]:
        """Every token that ends a turn or a text."""
        ...

    @property
    def specials(self) -> dict[str, int]:
        """Text → id of every control and user-defined token."""
        ...

    @property
    def control_ids(self) -> frozenset[int]:
        """Tokens that have no visible text."""
        ...

    def encode(self, text: str) -> list[int]:
        """Plain text only: no special token comes out, whatever the text looks like; no BOS."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The raw bytes of one token; for a special token the bytes of its name."""
        ...


class ModelInfo(NamedTuple):
    """What a model file says about itself."""

    name: str
    architecture: str
    description: str  # size and quantisation, for people
    context_tokens: int  # what the model was trained for
    chat_template: str | None
    fingerprint: str  # changes with weights, engine and settings
    num_parameters: int
    weight_bytes: int
    kv_bytes_per_token: int


class Runner(Protocol):
    """Contract of every engine backend; `runners/fake.py` is the reference."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """From the widest to the longest; fixed for the runner's life."""
        ...

    @property
    def max_batch_tokens(self) -> int:
        """Most tokens one `forward` may compute per lane."""
        ...

    @property
    def max_logits(self) -> int:
        """Most logit rows one `forward` may return per lane (at least the lane's slots)."""
        ...

    @property
    def can_splice(self) -> bool:
        """Whether segments may be cut and joined; if not, only a whole sequence can be restored."""
        ...

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        """Compute the rows (sorted by slot) and extend their slots.

        Returns, row by row, (num_logits, vocabulary): views that the next call overwrites. When it raises,
        every row's slot holds an unknown number of its new tokens: `truncate` them.
        """
        ...

    def truncate(self, slot: int, num_tokens: int) -> None:
        """Forget everything after the first `num_tokens`."""
        ...

    def release(self, slot: int) -> None:
        """Forget the slot's tokens. Harmless on an empty slot."""
        ...

    def export(self, slot: int, start: int, end: int) -> Segment:
        """Copy the KV of tokens start..end of a slot out. Where `can_splice` is false, start is 0."""
        ...

    def restore(self, slot: int, segments: Sequence[Segment], num_tokens: int) -> None:
        """Replace the slot's content by the segments, joined and cut to `num_tokens`. They stay the caller's."""
        ...

    def close(self) -> None: ...
