"""The seam to a model: weights, tokenizer, and the KV memory of *running* sequences.

A runner knows slots and token ids, never requests. Slots are numbered lane by lane: lane 0 holds slots
0..num_slots-1, lane 1 the next ones. Everything but `tokenizer` belongs to the engine thread.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.types import ImageSpan, Sampling

TokenIds = NDArray[np.int32]
Logits = NDArray[np.float32]  # of a runner with a chooser: something that `np.asarray` makes one of, waiting for it
Vector = NDArray[np.float32]  # (dimensions,)
Vectors = NDArray[np.float32]  # (texts, dimensions)
Packed = NDArray[np.uint8]  # a segment as bytes
Pooling = Literal["mean", "cls", "last", "rank"]


class Lane(NamedTuple):
    """A group of slots of one size that are computed together."""

    num_slots: int
    slot_tokens: int  # tokens one slot can hold


class Picks(Protocol):
    """Tokens that a device chooses; nobody waits for them until they are read."""

    def read(self) -> TokenIds:
        """One id for each that was wanted, in that order; -1 where the logits were no numbers."""
        ...


class Unread(NamedTuple):
    """A chosen token whose id the host does not know yet."""

    picks: Picks
    place: int


UNREAD_ID = -1  # stands among ids for a token that is unread; ids below it stand for pieces of images


@dataclass(slots=True)  # not frozen: one is made for every token, and a frozen one takes four times as long to make
class Row:
    """One sequence's part of a forward pass: `ids` at positions start, start + 1, …"""

    slot: int
    start: int
    ids: TokenIds
    num_logits: int  # logits wanted for this many of the last positions
    images: tuple[ImageSpan, ...] = ()  # all of the sequence; a row holds the whole of one or nothing of it
    unread: Unread | None = None  # what the last id is, where that is UNREAD_ID
    adapter: str | None = None  # by its name, of those that the runner was loaded with


class Want(NamedTuple):
    """What a device needs to choose one token."""

    logits: Logits  # what `forward` gave for a row; its last position counts
    sampling: Sampling  # temperature, top_k, top_p, min_p and logit_bias of it
    number: float  # from [0, 1), for the draw
    banned: Collection[int]
    allowed: NDArray[np.bool_] | None  # (vocabulary,)


class Chooser(Protocol):
    """Chooses tokens where the logits are. Does the steps of `sampling/sampler.py` that it can do, in that order."""

    def can_choose(self, sampling: Sampling) -> bool:
        """Whether it can do every step that this sampling wants."""
        ...

    def choose(self, wants: Sequence[Want]) -> Picks:
        """Order the choice of one token for each want; does not wait for the device."""
        ...


class ImageTokens(NamedTuple):
    """What stands in a prompt for an image."""

    ids: tuple[int, ...]  # with the tokens that open and close it
    start: int  # the first of the ids that is the image's own
    num_tokens: int  # how many ids are the image's own


class ImageEncoder(Protocol):
    """What turns an image into tokens of a prompt. Safe to call from any thread."""

    @property
    def marker(self) -> str:
        """The text of the token that a chat template writes where an image stands."""
        ...

    @property
    def before(self) -> str:
        """Text that belongs in front of the marker: joined with what stands there before that is cut into tokens."""
        ...

    @property
    def after(self) -> str:
        """Text that belongs behind the marker: joined with what stands there before that is cut into tokens."""
        ...

    def tokens(self, width: int, height: int) -> ImageTokens:
        """What the marker becomes, for an image of this size. Raises InvalidRequest where the model cannot take it."""
        ...


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


class Packer(Protocol):
    """Turns segments into bytes that outlive the process, and back. Engine thread only."""

    @property
    def layout(self) -> str:
        """How the bytes are laid out: they are good only for the same model with the same layout."""
        ...

    def pack(self, segment: Segment) -> Packed:
        """A segment as bytes, which stay until `release`, whatever becomes of the segment. May wait for a device."""
        ...

    def release(self, data: Packed) -> None:
        """Give back bytes that `pack` gave: nobody reads them any more."""
        ...

    def unpack(self, num_tokens: int, data: Packed) -> Segment:
        """A new segment from bytes, which belongs to the caller. Raises ValueError for bytes of another layout."""
        ...


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
    generation: Mapping[str, object] = MappingProxyType({})  # what files say of sampling, under our names; unchecked
    tool_template: str | None = None  # for chats with tools, where the file has one for them


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
    def image_encoder(self) -> ImageEncoder | None:
        """What turns images into tokens; None: the model takes no images."""
        ...

    @property
    def chooser(self) -> Chooser | None:
        """What chooses tokens on the device: `forward` then only orders work. None: it returns computed logits."""
        ...

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes, from the widest to the longest; fixed for the runner's life."""
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

    @property
    def packer(self) -> Packer | None:
        """What turns segments into bytes; None: they cannot be kept outside the process."""
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

    def rest(self) -> None:
        """Nobody asks for anything: give back what only passes needed."""
        ...

    def close(self) -> None: ...
