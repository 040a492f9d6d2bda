"""CUDA kernels of ours: they write KV into a pool in place and attend to it, each row to its own length.

MLX changes arrays by making new ones. While a pass is under way it cannot reuse the old one's memory, so that every
step would copy all KV; and its attention takes rows of different lengths only with a mask, which is slow. So the pool
is written to behind MLX's back. That is sound because whoever reads what was written comes later on the same stream:
within a pass no kernel reads a place that another one of it writes, and passes are launched one after another.

A pool is (layers, 2, slots, heads, tokens, width): K, then V.
"""

from typing import NamedTuple

import mlx.core as mx

_MAX_WARPS = 16
_UNROLLED = 4

# One block: a row, a K/V head, a part of its keys, one of its new tokens. A warp: one of the query heads that share the
# K/V head, and every STRIPES-th run of keys. Keys from `start` on are not read from the pool but from what is new.
_ATTEND = """
    const int row = blockIdx.x / HEADS, head = blockIdx.x % HEADS, part_index = blockIdx.y, token = blockIdx.z;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, query = warp % GROUP, stripe = warp / GROUP;
    const int start = starts[row];
    if (token >= counts[row]) return;
    const int WIDTH = 32 * EACH;
    const long slot_size = (long)HEADS * CAPACITY * WIDTH;
    T* slot_keys = const_cast<T*>(pool) + ((long)layer[0] * 2 * SLOTS + slots[row]) * slot_size
                   + (long)head * CAPACITY * WIDTH;
    T* slot_values = slot_keys + (long)SLOTS * slot_size;
    const T* new_keys = keys + ((long)row * HEADS + head) * TOKENS * WIDTH;
    const T* new_values = values + ((long)row * HEADS + head) * TOKENS * WIDTH;

    if (part_index == 0) {
      for (int d = threadIdx.x; d < WIDTH; d += blockDim.x) {
        slot_keys[(long)(start + token) * WIDTH + d] = new_keys[token * WIDTH + d];
        slot_values[(long)(start + token) * WIDTH + d] = new_values[token * WIDTH + d];
      }
    }

    const int num_keys = start + token + 1, per_part = (num_keys + PARTS - 1) / PARTS;
    const int first = part_index * per_part, last = min(num_keys, first + per_part);
    struct alignas(sizeof(T) * EACH) Piece { T at[EACH]; };
    const long asked = (((long)row * HEADS + head) * GROUP + query) * TOKENS + token;
    float q[EACH], sum[EACH], most = -1e30f, total = 0.f;
    {
      const Piece piece = *(const Piece*)(queries + asked * WIDTH + lane * EACH);
      for (int e = 0; e < EACH; e++) { q[e] = (float)piece.at[e] * scale[0]; sum[e] = 0.f; }
    }
    for (int i = first + stripe * UNROLLED; i < last; i += STRIPES * UNROLLED) {
      Piece k[UNROLLED], v[UNROLLED];
      float score[UNROLLED];
      #pragma unroll
      for (int u = 0; u < UNROLLED; u++) {
        const int j = min(i + u, last - 1);
        const T* from_keys = j < start ? slot_keys + (long)j * WIDTH : new_keys + (j - start) * WIDTH;
        const T* from_values = j < start ? slot_values + (long)j * WIDTH : new_values + (j - start) * WIDTH;
        k[u] = *(const Piece*)(from_keys + lane * EACH);
        v[u] = *(const Piece*)(from_values + lane * EACH);
      }
      #pragma unroll
      for (int u = 0; u < UNROLLED; u++) {
        score[u] = 0.f;
        #pragma unroll
        for (int e = 0; e < EACH; e++) score[u] += q[e] * (float)k[u].at[e];
      }
      #pragma unroll
      for (int o = 16; o > 0; o >>= 1) {
        #pragma unroll
        for (int u = 0; u < UNROLLED; u++) score[u] += __shfl_xor_sync(0xffffffff, score[u], o);
      }
      float now_most = most;
      #pragma unroll
      for (int u = 0; u < UNROLLED; u++) {
        if (i + u >= last) score[u] = -1e30f;
        now_most = fmaxf(now_most, score[u]);
      }
      const float kept = __expf(most - now_most);
      most = now_most;
      total *= kept;
      #pragma unroll
      for (int e = 0; e < EACH; e++) sum[e] *= kept;
      #pragma unroll
      for (int u = 0; u < UNROLLED; u++) {
        const float weight = i + u < last ? __expf(score[u] - most) : 0.f;
        total += weight;
        #pragma unroll
        for (int e = 0; e < EACH; e++) sum[e] += weight * (float)v[u].at[e];
      }
    }

    __shared__ float mosts[STRIPES][GROUP], totals[STRIPES][GROUP], sums[STRIPES][GROUP][32 * EACH];
    if (lane == 0) { mosts[stripe][query] = most; totals[stripe][query] = total; }
    for (int e = 0; e < EACH; e++) sums[stripe][query][lane * EACH + e] = sum[e];
    __syncthreads();
    for (int x = threadIdx.x; x < GROUP * WIDTH; x += blockDim.x) {
      const int g = x / WIDTH, d = x % WIDTH;
      float all_most = -1e30f, all_total = 0.f, value = 0.f;
      for (int s = 0; s < STRIPES; s++) all_most = fmaxf(all_most, mosts[s][g]);
      for (int s = 0; s < STRIPES; s++) {
        const float kept = __expf(mosts[s][g] - all_most);
        all_total += totals[s][g] * kept;
        value += sums[s][g][d] * kept;
      }
      const long place = (((long)row * HEADS + head) * GROUP + g) * TOKENS + token;
      if (PARTS == 1) {
        out[place * WIDTH + d] = (T)(value / all_total);
      } else {
        float* to = parts + (place * PARTS + part_index) * (WIDTH + 2);
        to[d] = value;
        if (d == 0) { to[WIDTH] = all_most; to[WIDTH + 1] = all_total; }
      }
    }
"""

# One block: a query. Joins what the parts of its keys gave.
_JOIN = """
    const long place = blockIdx.x;
    const int d = threadIdx.x;
    const float* from = parts + place * PARTS * (WIDTH + 2);
    float most = -1e30f, total = 0.f, value = 0.f;
    for (int p = 0; p < PARTS; p++) most = fmaxf(most, from[p * (WIDTH + 2) + WIDTH]);
    for (int p = 0; p < PARTS; p++) {
      const float kept = __expf(from[p * (WIDTH + 2) + WIDTH] - most);
      total += from[p * (WIDTH + 2) + WIDTH + 1] * kept;
      value += from[p * (WIDTH + 2) + d] * kept;
    }
    out[place * WIDTH + d] = (T)(value / total);
"""

# One thread: a number of `source` (layers, 2, heads, tokens, width), of which the first `place[2]` tokens are wanted.
_STORE = """
    const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    const int slot = place[0], start = place[1], count = place[2], first_layer = place[3];
    const int tokens = source_shape[3];  // not part of the template: each length would be compiled anew
    if (i == 0) done[0] = 1;
    if (i >= (long)source_shape[0] * 2 * HEADS * tokens * WIDTH) return;
    const int d = i % WIDTH, token = (i / WIDTH) % tokens;
    if (token >= count) return;
    const long rest = i / ((long)WIDTH * tokens);
    const int head = rest % HEADS;
    const long half = rest / HEADS + (long)first_layer * 2;
    const_cast<T*>(pool)[((half * SLOTS + slot) * HEADS + head) * CAPACITY * WIDTH + (long)(start + token) * WIDTH + d]
        = source[i];
"""


class Shape(NamedTuple):
    """Of a pool."""

    layers: int
    slots: int
    heads: int
    tokens: int
    width: int


class Where(NamedTuple):
    """What every layer's attention needs of a batch: arrays (rows,) int32, and into how many parts keys go."""

    slots: mx.array
    starts: mx.array
    counts: mx.array
    num_parts: int


class Kernels:
    """Compiled by MLX at their first use, for each type and shape."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        inputs = ["queries", "keys", "values", "pool", "slots", "starts", "counts", "layer", "scale"]
        self._attend = _kernel("pie_attend", inputs, ["out", "parts"], _ATTEND)
        self._join = _kernel("pie_join", ["parts"], ["out"], _JOIN)
        self._store = _kernel("pie_store", ["source", "pool", "place"], ["done"], _STORE)
        self._layers = [mx.array([index], mx.int32) for index in range(shape.layers)]
        self._scales: dict[float, mx.array] = {}

    def attend(
        self, queries: mx.array, new: tuple[mx.array, mx.array], pool: mx.array, layer: int, where: Where, scale: float
    ) -> mx.array:
        """(rows, query heads, tokens, width), after writing the new K and V to the pool."""
        num_rows, num_queries, num_tokens, width = queries.shape
        heads, parts = self._shape.heads, where.num_parts
        group = num_queries // heads
        stripes = max(1, _MAX_WARPS // group)
        threads = group * stripes * 32
        template = [("T", queries.dtype), ("HEADS", heads), ("GROUP", group), ("EACH", width // 32)]
        template += [("STRIPES", stripes), ("UNROLLED", _UNROLLED), ("PARTS", parts), ("TOKENS", num_tokens)]
        template += [("CAPACITY", self._shape.tokens), ("SLOTS", self._shape.slots)]
        places = num_rows * num_queries * num_tokens
        out, found = self._attend(
            inputs=[queries, *new, pool, *where[:3], self._layers[layer], self._scale(scale)],
            template=template,
            grid=(num_rows * heads * threads, parts, num_tokens),
            threadgroup=(threads, 1, 1),
            output_shapes=[queries.shape if parts == 1 else (1,), (1,) if parts == 1 else (places, parts, width + 2)],
            output_dtypes=[queries.dtype, mx.float32],
        )
        return out if parts == 1 else self._joined(found, queries)

    def _joined(self, found: mx.array, queries: mx.array) -> mx.array:
        places, parts, width = found.shape[0], found.shape[1], queries.shape[3]
        out: mx.array
        (out,) = self._join(
            inputs=[found],
            template=[("T", queries.dtype), ("PARTS", parts), ("WIDTH", width)],
            grid=(places * width, 1, 1),
            threadgroup=(width, 1, 1),
            output_shapes=[queries.shape],
            output_dtypes=[queries.dtype],
        )
        return out

    def store(self, source: mx.array, pool: mx.array, place: mx.array) -> mx.array:
        """Write (layers, 2, heads, tokens, width) to a slot; `place` is slot, first token, count, first layer."""
        template = [("T", source.dtype), ("HEADS", self._shape.heads), ("WIDTH", self._shape.width)]
        template += [("CAPACITY", self._shape.tokens), ("SLOTS", self._shape.slots)]
        done: mx.array
        (done,) = self._store(
            inputs=[source, pool, place],
            template=template,
            grid=(source.size, 1, 1),
            threadgroup=(256, 1, 1),
            output_shapes=[(1,)],
            output_dtypes=[mx.int32],
        )
        return done

    def _scale(self, scale: float) -> mx.array:
        if scale not in self._scales:
            self._scales[scale] = mx.array([scale], mx.float32)
        return self._scales[scale]


def _kernel(name: str, inputs: list[str], outputs: list[str], source: str):  # type: ignore[no-untyped-def]
    return mx.fast.cuda_kernel(name=name, input_names=inputs, output_names=outputs, source=source)
