"""A model that costs nothing: its logits are a hash of every token before them.

Shipped for tests, the simulator and load tests. Because a logit row depends on the whole content of a slot, any mistake
in caching, moving or truncating KV changes the text. It checks its callers: what llama.cpp would answer with an abort
raises here.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.runners.base import (
    Chooser,
    EmbeddingInfo,
    ImageEncoder,
    ImageTokens,
    Lane,
    Logits,
    ModelInfo,
    Packed,
    Packer,
    Pooling,
    Row,
    Segment,
    TokenIds,
    Vector,
    Vectors,
)

_NUM_ROWS = 4096  # distinct logit rows
_MASK = (1 << 64) - 1
_BYTES_PER_TOKEN = 64
_NUM_DIMENSIONS = 32
_PATCH = 16  # pixels a side
_MAX_IMAGE_TOKENS = 512

BOS, TURN_START, TURN_END, TEXT_END = 256, 257, 258, 259
_SPECIALS = {"<|bos|>": BOS, "<|im_start|>": TURN_START, "<|im_end|>": TURN_END, "<|endoftext|>": TEXT_END}
_NUM_TOKENS = 260

_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

MARKER = "<|image|>"  # what this template writes for an image
IMAGE_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|image|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class ByteTokenizer:
    """One token per byte, four control tokens, and `defined` ones: visible markers, as families define them."""

    end_ids = frozenset({TURN_END, TEXT_END})
    control_ids = frozenset(_SPECIALS.values())

    def __init__(self, *, has_bos: bool = False, defined: Sequence[str] = ()) -> None:
        self.bos_id = BOS if has_bos else None
        self.specials = {**_SPECIALS, **{text: _NUM_TOKENS + index for index, text in enumerate(defined)}}
        self.num_tokens = 256 + len(self.specials)
        self._names = {token_id: text.encode() for text, token_id in self.specials.items()}

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else self._names[token_id]


@dataclass(slots=True)
class FakeSegment:
    """What stands for KV: each token with the hash of all before it, so joining pieces of different texts shows."""

    ids: list[int]
    hashes: list[int]
    is_freed: bool = False

    @property
    def num_tokens(self) -> int:
        return len(self.ids)

    @property
    def num_bytes(self) -> int:
        return len(self.ids) * _BYTES_PER_TOKEN

    def split(self, at: int) -> tuple["FakeSegment", "FakeSegment"]:
        assert 0 < at < len(self.ids)
        self.free()
        return FakeSegment(self.ids[:at], self.hashes[:at]), FakeSegment(self.ids[at:], self.hashes[at:])

    @classmethod
    def of(cls, ids: Iterable[int]) -> "FakeSegment":
        """The KV that these tokens have at the start of a text."""
        slot = _Slot()
        for token_id in ids:
            slot.append(int(token_id))
        return cls(slot.ids, slot.hashes)

    def free(self) -> None:
        assert not self.is_freed, "segment freed twice"
        self.is_freed = True


class FakePacker:
    """Packs ids and hashes, filled up to the bytes that a segment counts. Implements `base.Packer`."""

    layout = "fake"

    def __init__(self) -> None:
        self.num_packed = 0  # and not released

    def pack(self, segment: Segment) -> Packed:
        assert isinstance(segment, FakeSegment) and not segment.is_freed, "packed a freed segment"
        self.num_packed += 1
        table = np.zeros((_BYTES_PER_TOKEN // 8, segment.num_tokens), np.uint64)
        table[0] = np.array(segment.ids, np.int64).view(np.uint64)
        table[1] = segment.hashes
        return table.reshape(-1).view(np.uint8)

    def release(self, data: Packed) -> None:
        assert self.num_packed > 0, "released twice"
        self.num_packed -= 1

    def unpack(self, num_tokens: int, data: Packed) -> FakeSegment:
        if data.nbytes != _BYTES_PER_TOKEN * num_tokens:
            raise ValueError(f"{data.nbytes} bytes for {num_tokens} tokens")
        ids, hashes = data.view(np.uint64).reshape(-1, num_tokens)[:2]
        return FakeSegment(ids.view(np.int64).tolist(), hashes.tolist())


@dataclass(slots=True)
class _Slot:
    ids: list[int] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)  # of ids[:i + 1]

    def append(self, token_id: int, adapter: str | None = None) -> None:
        last = self.hashes[-1] if self.hashes else 0x9E3779B97F4A7C15
        if adapter is not None:  # each of its tokens computes otherwise
            last ^= int.from_bytes(adapter.encode()[:8], "little")
        value = ((last ^ token_id) * 0xBF58476D1CE4E5B9) & _MASK
        self.ids.append(token_id)
        self.hashes.append(value ^ (value >> 29))

    def truncate(self, num_tokens: int) -> None:
        del self.ids[num_tokens:], self.hashes[num_tokens:]


class FakeEmbedder:
    """A text's vector is drawn from the hash of its tokens; a rank is a number drawn so. Made by `FakeRunner`."""

    max_batch_tokens = 256
    max_texts = 8

    def __init__(self, info: EmbeddingInfo, on_piece: Callable[[int], None], poison_id: int | None) -> None:
        self.info = info
        self.num_batches = 0
        self._on_piece = on_piece
        self._poison_id = poison_id
        self._texts: list[list[int]] = []
        self._num_left = 0

    def begin(self, texts: Sequence[TokenIds]) -> None:
        self._texts = [ids.tolist() for ids in texts]
        self._num_left = sum(map(len, self._texts))
        assert 0 < len(texts) <= self.max_texts and all(self._texts), "a batch of no texts, or of too many"
        assert max(map(len, self._texts)) <= self.info.max_tokens, "a text that is too long"
        assert len(texts) == 1 or self._num_left <= self.max_batch_tokens, "a batch that is too large"
        self.num_batches += 1

    def advance(self, max_tokens: int) -> Vectors | None:
        assert self._num_left > 0 and max_tokens > 0
        num_tokens = min(max_tokens, self._num_left)
        self._num_left -= num_tokens
        self._on_piece(num_tokens)
        return np.stack([self._vector(ids) for ids in self._texts]) if self._num_left == 0 else None

    def _vector(self, ids: list[int]) -> Vector:
        if self._poison_id in ids:
            return np.full(self.info.num_dimensions, np.nan, np.float32)
        draw = np.random.default_rng(FakeSegment.of(ids).hashes[-1])
        if self.info.pooling == "rank":
            return draw.random(1, np.float32)
        return draw.normal(0.0, 3.0, self.info.num_dimensions).astype(np.float32)


class FakeImageEncoder:
    """An image is a grid of patches, one token each, between a bracket on either side.

    For a `FakeRunner` with `IMAGE_TEMPLATE` whose first defined token is the marker: that has the id 260.
    """

    def __init__(self, token_id: int = 260, *, before: str = "", after: str = "") -> None:
        self._token_id = token_id
        self.before = before
        self.after = after

    @property
    def marker(self) -> str:
        return MARKER

    def tokens(self, width: int, height: int) -> ImageTokens:
        num_tokens = math.ceil(width / _PATCH) * math.ceil(height / _PATCH)
        if num_tokens > _MAX_IMAGE_TOKENS:
            raise InvalidRequest(f"an image of {width}x{height} pixels is too large for this model")
        return ImageTokens((ord("["), *(self._token_id,) * num_tokens, ord("]")), 1, num_tokens)

    def seen(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return pixels


class FakeRunner:
    """Implements `base.Runner`. `on_forward`, `on_embed` and `on_copy` may raise, to inject faults;
    `poison_id` makes a sequence's logits NaN from there on."""

    def __init__(
        self,
        *,
        lanes: Sequence[Lane] = (Lane(16, 1024), Lane(1, 8192)),
        step_seconds: Callable[[int], float] | None = None,
        sleep: Callable[[float], object] = time.sleep,
        on_forward: Callable[[Sequence[Row]], None] | None = None,
        on_copy: Callable[[], None] | None = None,
        poison_id: int | None = None,
        end_bias: float = 0.0,
        can_splice: bool = True,
        has_bos: bool = False,
        chat_template: str = _TEMPLATE,
        defined_tokens: Sequence[str] = (),
        pooling: Pooling = "mean",
        on_embed: Callable[[int], None] | None = None,
        can_generate: bool = True,
        image_encoder: ImageEncoder | None = None,
    ) -> None:
        self.image_encoder = image_encoder
        self.chooser: Chooser | None = None
        self.packer: Packer | None = FakePacker()
        self.tokenizer = ByteTokenizer(has_bos=has_bos, defined=defined_tokens)
        self._chat_template = chat_template
        self.lanes = tuple(lanes)
        self.max_batch_tokens = 512
        self.max_logits = max(64, *(lane.num_slots for lane in lanes))
        self.can_splice = can_splice
        self.num_computed_tokens = 0
        self._slots = [_Slot() for lane in lanes for _ in range(lane.num_slots)]
        self._capacity = [lane.slot_tokens for lane in lanes for _ in range(lane.num_slots)]
        self._table = _logit_table(end_bias, self.tokenizer.num_tokens)
        self._step_seconds = step_seconds
        self._sleep = sleep
        self._on_forward = on_forward
        self._on_copy = on_copy
        self._poison_id = poison_id
        self._on_embed = on_embed
        self._can_generate = can_generate
        self.embedder = FakeEmbedder(self._embedding(pooling), self._embed_piece, poison_id)

    def _embedding(self, pooling: Pooling) -> EmbeddingInfo:
        return EmbeddingInfo(
            pooling=pooling,
            num_dimensions=1 if pooling == "rank" else _NUM_DIMENSIONS,
            max_tokens=max(lane.slot_tokens for lane in self.lanes),
            prefix=() if self.tokenizer.bos_id is None else (BOS,),
            middle=(TEXT_END,),
        )

    def _embed_piece(self, num_tokens: int) -> None:
        if self._step_seconds is not None:
            self._sleep(self._step_seconds(num_tokens))
        if self._on_embed is not None:
            self._on_embed(num_tokens)

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(
            name="fake",
            architecture="fake",
            description="hash of the prefix",
            context_tokens=max(lane.slot_tokens for lane in self.lanes),
            chat_template=self._chat_template,
            fingerprint="fp_fake",
            num_parameters=0,
            weight_bytes=self._table.nbytes,
            kv_bytes_per_token=_BYTES_PER_TOKEN,
            can_generate=self._can_generate,
        )

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        assert [row.slot for row in rows] == sorted({row.slot for row in rows}), "rows must be sorted by slot"
        num_tokens = sum(len(row.ids) for row in rows)
        assert 0 < num_tokens <= self.max_batch_tokens * len(self.lanes)
        if self._step_seconds is not None:
            self._sleep(self._step_seconds(num_tokens))
        outputs = [self._compute(row) for row in rows]
        if self._on_forward is not None:
            self._on_forward(rows)
        return outputs

    def _compute(self, row: Row) -> Logits:
        slot = self._slots[row.slot]
        assert len(slot.ids) == row.start, f"slot {row.slot} holds {len(slot.ids)} tokens, row starts at {row.start}"
        assert row.start + len(row.ids) <= self._capacity[row.slot], "slot overflow"
        for token_id in row.ids:
            slot.append(int(token_id), row.adapter)
        self.num_computed_tokens += len(row.ids)
        first = len(slot.hashes) - row.num_logits
        logits: Logits = self._table[[value % _NUM_ROWS for value in slot.hashes[first:]]]
        if self._poison_id is not None and self._poison_id in slot.ids:
            logits[max(0, slot.ids.index(self._poison_id) - first) :] = np.nan
        return logits

    def truncate(self, slot: int, num_tokens: int) -> None:
        self._slots[slot].truncate(num_tokens)

    def release(self, slot: int) -> None:
        self._slots[slot] = _Slot()

    def export(self, slot: int, start: int, end: int) -> FakeSegment:
        ids = self._slots[slot].ids
        assert 0 <= start < end <= len(ids), f"export {start}..{end} of {len(ids)} tokens"
        assert self.can_splice or start == 0
        if self._on_copy is not None:
            self._on_copy()
        return FakeSegment(ids[start:end], self._slots[slot].hashes[start:end])

    def restore(self, slot: int, segments: Sequence[Segment], num_tokens: int) -> None:
        total = sum(segment.num_tokens for segment in segments)
        assert total == num_tokens or (self.can_splice and total > num_tokens)
        assert num_tokens <= self._capacity[slot], "slot overflow"
        fresh = _Slot()
        for segment in segments:
            assert isinstance(segment, FakeSegment)
            assert not segment.is_freed, "restored from a freed segment"
            fresh.ids += segment.ids
            fresh.hashes += segment.hashes
        fresh.truncate(num_tokens)
        self._slots[slot] = fresh
        if self._on_copy is not None:
            self._on_copy()

    def num_slot_tokens(self, slot: int) -> int:
        return len(self._slots[slot].ids)

    def rest(self) -> None:
        """Give nothing back: a pass of this model keeps no memory."""

    def close(self) -> None:
        self._slots.clear()


@cache
def _logit_table(end_bias: float, num_tokens: int) -> Logits:
    """Random rows that like lower-case letters and spaces, sometimes other bytes and markers, seldom an end token."""
    table = np.random.default_rng(7).normal(0.0, 1.5, (_NUM_ROWS, _NUM_TOKENS)).astype(np.float32)
    markers = np.random.default_rng(8).normal(4.0, 1.5, (_NUM_ROWS, num_tokens - _NUM_TOKENS)).astype(np.float32)
    table[:, 128:] -= 6.0
    table[:, :32] -= 6.0
    table[:, ord("a") : ord("z") + 1] += 4.0
    table[:, ord(" ")] += 5.0
    table[:, [TURN_END]] += 6.5 + end_bias
    return np.hstack([table, markers])
