"""The seam to a model: weights, tokenizer, and the KV memory of *running* sequences.

A runner knows slots and token ids, never requests. Slots are numbered lane by lane: lane 0 holds slots
0..num_slots-1, lane 1 the next ones. Everything but `tokenizer` belongs to the engine thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

TokenIds = NDArray[np.int32]
Logits = NDArray[np.float32]
Vector = NDArray[np.float32]  # (dimensions,)
Vectors = NDArray[np.float32]  # (texts, dimensions)
Pooling = Literal["mean", "cls", "last", "rank"]


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
    can_generate: bool = True  # False: an encoder, which only embeds or ranks


class EmbeddingInfo(NamedTuple):
    """How a model makes one vector of a text. `prefix`, `middle` and `suffix` are the tokens it wants around texts."""

    pooling: Pooling  # "rank": the one number of a text is how well a document fits a query, from 0 to 1
    num_dimensions: int
    max_tokens: int  # of one text
    prefix: tuple[int, ...] = ()
    middle: tuple[int, ...] = ()  # between a query and a document
    suffix: tuple[int, ...] = ()
    pair_template: str | None = None  # with {query} and {document}, for a model that was trained on one


class Embedder(Protocol):
    """Computes a batch of texts to one vector each, in pieces. Everything but `info` belongs to the engine thread."""

    @property
    def info(self) -> EmbeddingInfo: ...

    @property
    def max_batch_tokens(self) -> int:
        """Most tokens of a batch; a text that is longer is a batch of its own."""
        ...

    @property
    def max_texts(self) -> int:
        """Most texts of a batch."""
        ...

    def begin(self, texts: Sequence[TokenIds]) -> None:
        """Take a batch, in place of the one before, whether that was finished or not. Raises MemoryError."""
        ...

    def advance(self, max_tokens: int) -> Vectors | None:
        """Compute about so many tokens more; the vectors, not normalised, once the batch is done.

        A model that has to see a text as a whole computes the batch at once. When it raises, the batch is lost.
        """
        ...


class Runner(Protocol):
    """Contract of every engine backend; `runners/fake.py` is the reference."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def embedder(self) -> Embedder: ...

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
