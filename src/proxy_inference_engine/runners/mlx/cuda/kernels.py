"""CUDA kernels of ours: they write KV into a pool in place and attend to it, each row to its own length.

MLX changes arrays by making new ones. While a pass is under way it cannot reuse the old one's memory, so that every
step would copy all KV; and its attention takes rows of different lengths only with a mask, which is slow. So the pool
is written to behind MLX's back. That is sound because whoever reads what was written comes later on the same stream:
within a pass no kernel reads a place that another one of it writes, and passes are launched one after another.

A pool is (layers, 2, slots, heads, tokens, width): K, then V.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import mlx.core as mx

from proxy_inference_engine.runners.mlx.cuda.pool_sources import ATTEND, LOAD, STORE, TURN

MAX_PARTS = 32

_WARPS = 4
_MAX_HELD = 32  # numbers of queries that a thread holds
_MAX_RING = 32 << 10  # bytes of keys and values on their way to a block
_FEW = 4
UNIT = 64  # tokens; what a slot holds is a multiple of it
_COARSE_UNIT, _MAX_FINE = 256, 512
_MAX_LOOK, _MIN_LOOK_GENERATION = 128, 8  # width of a head; of a device
_PIECE, _COPIERS = 16, 256  # bytes that a thread copies, threads of a block


class PoolShape(NamedTuple):
    """The sizes of a pool's array, from the outermost to the innermost."""

    layers: int
    slots: int
    heads: int
    tokens: int
    width: int


class Where(NamedTuple):
    """What every layer's attention needs of a batch: arrays of int32 that begin with a number for each row, and into
    how many parts keys go."""

    num_rows: int
    slots: mx.array
    starts: mx.array
    counts: mx.array
    num_parts: int
    turns: mx.array | None = None  # positions that queries and keys are still to be turned by
    angles: mx.array | None = None  # (positions, width): cosines, then sines


class Layer(NamedTuple):
    """What of a layer is the same in every pass; the weights are of norms that queries and keys still need."""

    number: int
    scale: float
    query_weights: mx.array | None = None
    key_weights: mx.array | None = None
    eps: float = 0.0


class PromptWhere(NamedTuple):
    """What every layer's attention needs of a prompt that is computed alone."""

    span: "PromptSpan"
    places: list[mx.array]  # of every layer, from `upload`
    turns: mx.array  # the position that its first token is turned by
    angles: mx.array  # (positions, width): cosines, then sines


class PromptSpan(NamedTuple):
    """A prompt's tokens in a slot, and the rows of queries that they are among."""

    slot: int
    start: int
    num_tokens: int
    num_rows: int
    num_before: int

    @property
    def end(self) -> int:
        """The end of what these rows see in the slot."""
        return self.start - self.num_before + self.num_rows


def make_span(slot: int, start: int, num_tokens: int, capacity: int) -> PromptSpan:
    """Rows and what they see are multiples of a unit: MLX prepares its attention anew for each pair of lengths, which
    takes longer than most prompts."""
    unit = UNIT if num_tokens <= _MAX_FINE or up(start + num_tokens, _COARSE_UNIT) > capacity else _COARSE_UNIT
    num_before = start % unit
    return PromptSpan(slot, start, num_tokens, up(start + num_tokens, unit) - start + num_before, num_before)


def up(count: int, unit: int) -> int:
    """A number rounded up to the next multiple of a unit."""
    return -(-count // unit) * unit


class New(NamedTuple):
    """Queries, keys and values of a pass."""

    arrays: tuple[mx.array, mx.array, mx.array]
    num_queries: int  # heads
    num_tokens: int
    out_shape: tuple[int, ...]
    is_joined: bool


def apart(queries: mx.array, keys: mx.array, values: mx.array) -> New:
    """What is new in three arrays (rows, heads, tokens, width); what attention gives has that form too."""
    return New((queries, keys, values), queries.shape[1], queries.shape[2], queries.shape, is_joined=False)


def joined(array: mx.array, num_tokens: int, shape: PoolShape) -> New:
    """What is new, in one array (rows × tokens, heads × width); attention gives as much as the queries are of it."""
    num_places, size = array.shape
    num_queries = size // shape.width - 2 * shape.heads
    return New((array,) * 3, num_queries, num_tokens, (num_places, num_queries * shape.width), is_joined=True)


class _Plan(NamedTuple):
    """How a block divides its work; `pool_sources.ATTEND` says what these are."""

    lanes: int
    queries: int
    stripes: int
    unrolled: int
    stages: int


@cache
def _plan(width: int, number_bytes: int, group: int) -> _Plan:
    lanes = 16 if width >= 64 else 8
    held = width // lanes
    queries = max(n for n in range(1, group + 1) if group % n == 0 and (n == 1 or n * held <= _MAX_HELD))
    sets = group // queries
    stripes = max(1, _WARPS // sets)
    ring = 2 * width * number_bytes * 32 // lanes * sets * stripes  # one key of every lane
    unrolled = 2 if 2 * 2 * ring <= _MAX_RING else 1
    return _Plan(lanes, queries, stripes, unrolled, max(2, min(4, _MAX_RING // (ring * unrolled))))


class Kernels:
    """Compiled by MLX at their first use, for each type and shape."""

    def __init__(self, shape: PoolShape, dtype: mx.Dtype, max_tokens: int) -> None:
        self.shape = shape
        self.pool = mx.zeros((shape.layers, 2, shape.slots, shape.heads, shape.tokens, shape.width), dtype)
        inputs = ["queries", "keys", "values", "pool", "slots", "starts", "counts", "layer", "numbers"]
        inputs += ["turns", "angles", "query_weights", "key_weights", "ahead", "counters"]
        self._attend = kernel("pie_attend", inputs, ["out", "parts"], ATTEND)
        inputs = ["joined", "pool", "place", "numbers", "turns", "angles", "query_weights", "key_weights"]
        self._turn = kernel("pie_turn", inputs, ["out"], TURN)
        self._store = kernel("pie_store", ["source", "pool", "place"], ["done"], STORE)
        self._load = kernel("pie_load", ["pool", "place"], ["out"], LOAD)
        numbers = mx.arange(shape.layers + _FEW, dtype=mx.int32)
        self._layers = [numbers[index:] for index in range(shape.layers)]
        self._numbers: dict[tuple[float, float], mx.array] = {}
        self._counters = mx.zeros((shape.slots * shape.heads * max_tokens,), mx.int32)
        self._no_angles, self._no_weights = mx.zeros((1,), mx.float32), mx.zeros((1, 1), dtype)
        # Whether MLX's attention takes keys and values as they lie in the pool: what cuDNN has a kernel for.
        generation = int(mx.device_info().get("compute_capability_major", _MIN_LOOK_GENERATION))
        self.can_look = shape.width <= _MAX_LOOK and dtype.size == 2 and generation >= _MIN_LOOK_GENERATION
        mx.eval(self.pool, self._layers, self._counters, self._no_angles, self._no_weights)

    def attend(self, new: New, layer: Layer, where: Where, ahead: mx.array | None = None) -> mx.array:
        """What the queries find, after the new K and V are written to the pool. `ahead` are weights needed next."""
        num_rows, parts = where.num_rows, where.num_parts
        width, group = self.shape.width, new.num_queries // self.shape.heads
        plan = _plan(width, self.pool.dtype.size, group)
        threads = group // plan.queries * plan.stripes * 32
        num_places = num_rows * self.shape.heads * new.num_tokens
        found_size = num_places * parts * group * (width + 2)
        weights = (layer.query_weights, layer.key_weights)
        out: mx.array
        out, _ = self._attend(
            inputs=[
                *(*new.arrays, self.pool, where.slots, where.starts, where.counts, self._layers[layer.number]),
                *(self._number(layer), where.starts if where.turns is None else where.turns),
                self._no_angles if where.angles is None else where.angles,
                *(self._no_weights if each is None else each for each in (*weights, ahead)),
                self._counters,
            ],
            template=[
                *(("T", self.pool.dtype), ("WIDTH", width), ("HEADS", self.shape.heads), ("GROUP", group)),
                *((name.upper(), number) for name, number in zip(_Plan._fields, plan, strict=True)),
                *(("MAX_PARTS", MAX_PARTS), ("JOINED", new.is_joined), ("TURNED", where.turns is not None)),
                *(("NORMED", layer.query_weights is not None), ("HAS_AHEAD", ahead is not None)),
            ],
            grid=(num_rows * self.shape.heads * threads, parts, new.num_tokens),
            threadgroup=(threads, 1, 1),
            output_shapes=[new.out_shape, (found_size if parts > 1 else 1,)],
            output_dtypes=[self.pool.dtype, mx.float32],
        )
        return out

    def turn(self, array: mx.array, layer: Layer, where: PromptWhere) -> mx.array:
        """The queries of a prompt's joined queries, keys and values (tokens, heads × width), normed and turned, among
        the rows of its span, after K and V are written to the pool."""
        num_rows, num_heads = where.span.num_rows, array.shape[1] // self.shape.width
        num_queries = num_heads - 2 * self.shape.heads
        weights = (layer.query_weights, layer.key_weights)
        out: mx.array
        (out,) = self._turn(
            inputs=[
                *(array, self.pool, where.places[layer.number], self._number(layer), where.turns, where.angles),
                *(self._no_weights if each is None else each for each in weights),
            ],
            template=[
                *(("T", self.pool.dtype), ("WIDTH", self.shape.width), ("HEADS", self.shape.heads)),
                *(("GROUP", num_queries // self.shape.heads), ("NORMED", layer.query_weights is not None)),
            ],
            grid=(up(num_rows * num_heads * 8, _COPIERS), 1, 1),
            threadgroup=(_COPIERS, 1, 1),
            output_shapes=[(num_rows, num_queries * self.shape.width)],
            output_dtypes=[self.pool.dtype],
        )
        return out

    def look(self, queries: mx.array, layer: Layer, where: PromptWhere) -> mx.array:
        """What a prompt's queries (rows, heads × width) find in the pool, up to each one's own token; (tokens, heads ×
        width). Keys and values are views: a copy of them would not wait for `turn` to write them, as the attention
        does that needs its queries."""
        span, at, slot = where.span, layer.number, where.span.slot
        asked = queries.reshape(1, span.num_rows, -1, self.shape.width).transpose(0, 2, 1, 3)
        keys, values = (
            self.pool[at : at + 1, half : half + 1, slot : slot + 1, :, : span.end].squeeze((0, 1)) for half in (0, 1)
        )
        found = mx.fast.scaled_dot_product_attention(asked, keys, values, scale=layer.scale, mask="causal")
        rows = found.transpose(0, 2, 1, 3).reshape(span.num_rows, -1)
        return rows[span.num_before : span.num_before + span.num_tokens]

    def _number(self, layer: Layer) -> mx.array:
        key = (layer.scale, layer.eps)
        if key not in self._numbers:
            self._numbers[key] = on_device(mx.array(key, mx.float32))
            mx.eval(self._numbers[key])  # now: it is no part of the pass that is being traced
        return self._numbers[key]

    def store(self, source: mx.array, place: mx.array) -> mx.array:
        """Write (layers, 2, heads, tokens, width) to a slot; `place` is from `upload`."""
        done: mx.array
        (done,) = self._store(
            inputs=[source, self.pool, place],
            template=self._copying(),
            grid=(*self._grid(source.shape[3]), source.shape[0] * 2 * self.shape.heads, 1),
            threadgroup=(_COPIERS, 1, 1),
            output_shapes=[(1,)],
            output_dtypes=[mx.int32],
        )
        return done

    def load(self, place: "PoolPlace") -> mx.array:
        """(layers, 2, heads, tokens, width) of a slot, all layers."""
        shape = self.shape
        out: mx.array
        (out,) = self._load(
            inputs=[self.pool, *upload([place])],
            template=self._copying(),
            grid=(*self._grid(place.num_tokens), shape.layers * 2 * shape.heads, 1),
            threadgroup=(_COPIERS, 1, 1),
            output_shapes=[(shape.layers, 2, shape.heads, place.num_tokens, shape.width)],
            output_dtypes=[self.pool.dtype],
        )
        return out

    def _copying(self) -> list[tuple[str, object]]:
        shape, dtype = self.shape, self.pool.dtype
        return [("T", dtype), ("EACH", _PIECE // dtype.size), ("HEADS", shape.heads), ("WIDTH", shape.width)]

    def _grid(self, num_tokens: int) -> tuple[int]:
        pieces = num_tokens * self.shape.width * self.pool.dtype.size // _PIECE
        return (up(pieces, _COPIERS),)


class PoolPlace(NamedTuple):
    """Some tokens of a slot of a pool, from one layer on."""

    slot: int
    start: int
    num_tokens: int
    first_layer: int = 0


def upload(places: Sequence[tuple[int, ...]]) -> list[mx.array]:
    """Tuples of one size as arrays that kernels take, with one copy to the device for all of them."""
    size = len(places[0])
    numbers = on_device(mx.array([number for place in places for number in place], mx.int32))
    return [numbers[at : at + size] for at in range(0, size * len(places), size)]


def on_device(numbers: mx.array) -> mx.array:
    """A copy in the device's own memory, filled up to more than a few bytes. What was made by the host, and whatever
    has at most eight bytes, every kernel would read over the bus, which takes longer than most kernels."""
    return mx.concatenate([numbers, mx.zeros((_FEW,), numbers.dtype)])


def kernel(name: str, inputs: list[str], outputs: list[str], source: str, shared_bytes: int = 0):  # type: ignore[no-untyped-def]
    return mx.fast.cuda_kernel(
        name=name, input_names=inputs, output_names=outputs, source=source, shared_memory=shared_bytes
    )
