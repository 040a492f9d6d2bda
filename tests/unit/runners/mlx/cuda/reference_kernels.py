"""What our CUDA kernels compute, in plain MLX: so that all around them can be tested without such a device."""

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

Kernel = Callable[..., list[mx.array]]


def kernel(name: str, inputs: list[str], outputs: list[str], source: str, shared_bytes: int = 0) -> Kernel:
    """Stands where `kernels.kernel` stands."""

    def run(
        *,
        inputs: Sequence[mx.array],
        template: Sequence[tuple[str, Any]],
        grid: tuple[int, ...],
        threadgroup: tuple[int, ...],
        output_shapes: Sequence[tuple[int, ...]],
        output_dtypes: Sequence[mx.Dtype],
    ) -> list[mx.array]:
        found = _KERNELS[name](dict(zip(names, inputs, strict=True)), dict(template), grid, threadgroup)
        whole = [
            each.reshape(shape).astype(dtype)
            for each, shape, dtype in zip(found, output_shapes, output_dtypes, strict=False)
        ]
        return [*whole, *(mx.zeros(shape) for shape in output_shapes[len(whole) :])]

    names = list(inputs)
    return run


def _attend(given: dict[str, mx.array], constants: dict[str, Any], grid: Any, threadgroup: Any) -> list[mx.array]:
    heads, group, width = constants["HEADS"], constants["GROUP"], constants["WIDTH"]
    rows, tokens = grid[0] // threadgroup[0] // heads, grid[2]
    queries, keys, values = _heads(given, constants, rows, tokens)
    scale, eps = given["numbers"][0], given["numbers"][1]
    if constants["NORMED"]:
        queries = _normed(queries, given["query_weights"], eps)
        keys = _normed(keys, given["key_weights"], eps)
    if constants["TURNED"]:
        positions = given["turns"][:rows, None] + mx.arange(tokens)
        angles = given["angles"][positions][:, :, None]
        queries, keys = _turned(queries, angles), _turned(keys, angles)
    pool, layer = given["pool"], int(np.array(given["layer"])[0])
    answers = []
    for row in range(rows):
        slot, start, count = (int(np.array(given[name])[row]) for name in ("slots", "starts", "counts"))
        for half, new in enumerate((keys, values)):
            pool[layer, half, slot, :, start : start + count] = new[row, :count].transpose(1, 0, 2).astype(pool.dtype)
        for token in range(tokens):
            known = pool[layer, :, slot, :, : start + min(token, count - 1) + 1].astype(mx.float32)
            asked = queries[row, token].reshape(heads, group, width)
            weights = mx.softmax(asked @ known[0].transpose(0, 2, 1) * scale, axis=-1)
            answers.append((weights @ known[1]).reshape(heads * group, width))
    found = mx.stack(answers).reshape(rows, tokens, heads * group, width)
    return [found if constants["JOINED"] else found.transpose(0, 2, 1, 3)]


def _turn(given: dict[str, mx.array], constants: dict[str, Any], *_: Any) -> list[mx.array]:
    slot, start, count, layer, num_rows, num_before = np.array(given["place"]).tolist()
    joined = given["joined"].astype(mx.float32).reshape(count, -1, constants["WIDTH"])
    num_keys = constants["HEADS"]
    num_queries = num_keys * constants["GROUP"]
    queries, keys, values = mx.split(joined, [num_queries, num_queries + num_keys], axis=1)
    if constants["NORMED"]:
        eps = given["numbers"][1]
        queries, keys = _normed(queries, given["query_weights"], eps), _normed(keys, given["key_weights"], eps)
    angles = given["angles"][given["turns"][0] + mx.arange(count)][:, None]
    pool = given["pool"]
    for half, new in enumerate((_turned(keys, angles), values)):
        pool[layer, half, slot, :, start : start + count] = new.transpose(1, 0, 2).astype(pool.dtype)
        pool[layer, half, slot, :, start + count : start - num_before + num_rows] = 0
    rows = mx.zeros((num_rows, num_queries, constants["WIDTH"]))
    rows[num_before : num_before + count] = _turned(queries, angles)
    return [rows]


def _heads(given: dict[str, mx.array], constants: dict[str, Any], rows: int, tokens: int) -> list[mx.array]:
    """Queries, keys and values, each (rows, tokens, heads, width)."""
    if not constants["JOINED"]:
        return [given[name].astype(mx.float32).transpose(0, 2, 1, 3) for name in ("queries", "keys", "values")]
    num_keys = constants["HEADS"]
    num_queries = num_keys * constants["GROUP"]
    all_heads = given["queries"].astype(mx.float32).reshape(rows, tokens, -1, constants["WIDTH"])
    return list(mx.split(all_heads, [num_queries, num_queries + num_keys], axis=2))


def _normed(values: mx.array, weights: mx.array, eps: mx.array) -> mx.array:
    return values * mx.rsqrt(mx.mean(values * values, axis=-1, keepdims=True) + eps) * weights.astype(mx.float32)


def _turned(values: mx.array, angles: mx.array) -> mx.array:
    (one, other), (cosines, sines) = mx.split(values, 2, axis=-1), mx.split(angles, 2, axis=-1)
    return mx.concatenate([one * cosines - other * sines, other * cosines + one * sines], axis=-1)


def _place(given: dict[str, mx.array]) -> tuple[int, int, int, int]:
    slot, start, count, layer = np.array(given["place"]).tolist()
    return slot, start, count, layer


def _store(given: dict[str, mx.array], *_: Any) -> list[mx.array]:
    slot, start, count, layer = _place(given)
    source, pool = given["source"], given["pool"]
    pool[layer : layer + source.shape[0], :, slot, :, start : start + count] = source[:, :, :, :count]
    return [mx.array([1])]


def _load(given: dict[str, mx.array], *_: Any) -> list[mx.array]:
    slot, start, count, _first = _place(given)
    return [given["pool"][:, :, slot, :, start : start + count]]


def _product(given: dict[str, mx.array], constants: dict[str, Any], *_: Any) -> list[mx.array]:
    inputs = given["inputs"].astype(mx.float32)
    if constants["NORMED"]:
        inputs = _normed(inputs, given["norm"], given["eps"][0])
    found = inputs @ given["weights"].astype(mx.float32).T
    if constants["GATED"]:
        return [_gated(found)]
    return [found + given["added"].astype(mx.float32) if constants["ADDED"] else found]


def _add_norm(given: dict[str, mx.array], *_: Any) -> list[mx.array]:
    total = given["hidden"] + given["added"]
    return [total, _normed(total.astype(mx.float32), given["norm"], given["eps"][0])]


def _gate(given: dict[str, mx.array], *_: Any) -> list[mx.array]:
    return [_gated(given["both"].astype(mx.float32))]


def _gated(both: mx.array) -> mx.array:
    gates, values = mx.split(both, 2, axis=-1)
    return gates * mx.sigmoid(gates) * values


_KERNELS: dict[str, Callable[..., list[mx.array]]] = {
    "pie_attend": _attend,
    "pie_turn": _turn,
    "pie_store": _store,
    "pie_load": _load,
    "pie_product": _product,
    "pie_add_norm": _add_norm,
    "pie_gate": _gate,
}
