"""Copies of the caches of mlx-lm, class by class, without a model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core")

from mlx_lm.models.cache import (  # noqa: E402
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    ConcatenateKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
)

from proxy_inference_engine.runners.mlx.memory.layer_cache import (  # noqa: E402
    alias,
    arrays,
    can_go_back,
    can_merge,
    compact_copy,
    unknown_class,
)

HEADS, WIDTH = 2, 4
MAKERS: dict[str, Callable[[], Any]] = {
    "plain": KVCache,
    "window": lambda: RotatingKVCache(max_size=16),
    "window that keeps its beginning": lambda: RotatingKVCache(max_size=16, keep=4),
    "chunks": lambda: ChunkedKVCache(16),
}


def _tokens(start: int, stop: int) -> Any:
    """Keys that tell their position."""
    return mx.broadcast_to(
        mx.arange(start, stop, dtype=mx.float32)[None, None, :, None], (1, HEADS, stop - start, WIDTH)
    )


def _feed(cache: Any, start: int, stop: int) -> list[float]:
    """What the new tokens are shown, in the order of the buffer."""
    if isinstance(cache, ChunkedKVCache):
        cache.maybe_trim_front()
    keys, values = cache.update_and_fetch(_tokens(start, stop), -_tokens(start, stop))
    assert np.array_equal(np.array(keys), -np.array(values))
    shown: list[float] = np.array(keys)[0, 0, :, 0].tolist()
    return shown


@pytest.mark.parametrize("copied", [alias, compact_copy])
@pytest.mark.parametrize("stops", [[5], [5, 6], [15], [16], [17], [40], [40, 41, 42], [3, 30, 31, 45], [*range(1, 40)]])
@pytest.mark.parametrize("name", MAKERS)
def test_a_copy_goes_on_like_the_original(name: str, stops: list[int], copied: Callable[[Any], Any]) -> None:
    cache = MAKERS[name]()
    for start, stop in zip([0, *stops], stops, strict=False):
        _feed(cache, start, stop)
    end = stops[-1]
    held = copied(cache)
    parts = [(end, end + 1), (end + 1, end + 2), (end + 2, end + 9), (end + 9, end + 10)]
    expected = [_feed(cache, *part) for part in parts]
    for _ in range(2):
        twin = alias(held)
        found = [_feed(twin, *part) for part in parts]
        assert [row[-1] for row in found] == [row[-1] for row in expected]
        assert [sorted(row) for row in found] == [sorted(row) for row in expected]


@pytest.mark.parametrize("name", MAKERS)
def test_a_compact_copy_holds_no_room_and_no_more_than_the_window(name: str) -> None:
    cache = MAKERS[name]()
    _feed(cache, 0, 10)
    _feed(cache, 10, 11)
    assert compact_copy(cache).keys.shape[2] == 11
    long = MAKERS[name]()
    _feed(long, 0, 100)
    expected = {"plain": 100, "window": 16}.get(name, 100)
    assert compact_copy(long).keys.shape[2] == expected


def test_states_and_lists() -> None:
    state = ArraysCache(2)
    state[0] = mx.ones((1, 3))
    pair = CacheList(state, KVCache())
    _feed(pair[1], 0, 5)
    held = compact_copy(pair)
    pair[0][0] = mx.zeros((1, 3))
    _feed(pair[1], 5, 9)
    twin = alias(held)
    assert np.array(twin[0][0]).tolist() == [[1, 1, 1]]
    assert twin[0][1] is None
    assert _feed(twin[1], 5, 6) == [0, 1, 2, 3, 4, 5]
    assert len(arrays([held])) == 3


def _filled(cache: Any, num_tokens: int) -> Any:
    _feed(cache, 0, num_tokens)
    return cache


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: _filled(KVCache(), 50), True),
        (lambda: _filled(RotatingKVCache(16), 15), True),
        (lambda: _filled(RotatingKVCache(16), 16), False),
        (lambda: _filled(ChunkedKVCache(16), 10), True),
        (lambda: _trimmed(), False),
        (lambda: ArraysCache(1), False),
        (lambda: CacheList(_filled(KVCache(), 5), _filled(RotatingKVCache(16), 5)), True),
        (lambda: CacheList(_filled(KVCache(), 5), ArraysCache(1)), False),
    ],
)
def test_going_back(make: Callable[[], Any], expected: bool) -> None:
    cache: Any = make()
    assert can_go_back(cache) is expected
    if expected and not isinstance(cache, CacheList):
        end = cache.offset
        cache.trim(3)
        assert _feed(cache, 70, 71) == [*range(end - 3), 70]
        assert _feed(cache, 71, 73) == [*range(end - 3), 70, 71, 72][-max(end, 17) :]


def _trimmed() -> Any:
    cache = _filled(ChunkedKVCache(16), 50)
    cache.maybe_trim_front()
    return cache


@pytest.mark.parametrize(
    ("cache", "name"),
    [
        (KVCache(), None),
        (CacheList(KVCache(), CacheList(ArraysCache(1))), None),
        (QuantizedKVCache(), "QuantizedKVCache"),
        (CacheList(KVCache(), ConcatenateKVCache()), "ConcatenateKVCache"),
    ],
)
def test_unknown_classes(cache: Any, name: str | None) -> None:
    assert unknown_class(cache) == name


@pytest.mark.parametrize(
    ("cache", "expected"),
    [
        (KVCache(), True),
        (RotatingKVCache(8), True),
        (RotatingKVCache(8, keep=4), False),
        (ChunkedKVCache(8), False),
        (CacheList(ArraysCache(1), KVCache()), True),
        (CacheList(ArraysCache(1), ChunkedKVCache(8)), False),
    ],
)
def test_what_can_be_merged(cache: Any, expected: bool) -> None:
    assert can_merge(cache) is expected
