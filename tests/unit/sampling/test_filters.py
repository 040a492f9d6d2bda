"""Whole numbers as weights make every sum exact, so the fast filters must agree with the slow ones in every index."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_inference_engine.sampling import filters
from tests.unit.sampling import reference
from tests.unit.sampling.reference import float32

small_weights = st.lists(st.integers(0, 40), min_size=1, max_size=60).filter(any).map(float32)
shares = st.integers(1, 63).map(lambda n: n / 64)

Maker = Callable[[np.random.Generator, int], filters.Weights]
_SHAPES: dict[str, Maker] = {
    "even": lambda random, num: random.integers(0, 1000, num).astype(np.float32),
    "equal": lambda _, num: np.full(num, 3, dtype=np.float32),
    "steep": lambda random, num: (2.0 ** random.geometric(0.5, num).clip(0, 14)).astype(np.float32),
    "sparse": lambda random, num: (random.integers(1, 500, num) * (random.random(num) < 0.01)).astype(np.float32),
    "one": lambda _, num: float32([0, 1_000_000, *[1] * (num - 2)]),
}


@pytest.fixture(params=[(shape, num) for shape in _SHAPES for num in (2047, 2048, 5000)], ids=str)
def large_weights(request: pytest.FixtureRequest) -> filters.Weights:
    shape, num = request.param
    return _SHAPES[shape](np.random.default_rng(num), num)


@given(small_weights, st.integers(1, 70))
def test_top_k_is_the_head_of_the_ranking(weights: filters.Weights, num: int) -> None:
    assert filters.top_k(weights, num).tolist() == reference.top_k(weights.tolist(), num)


@pytest.mark.parametrize("num", [1, 2, 40, 1023, 1024, 1025, 4000, 10_000])
def test_top_k_of_many(large_weights: filters.Weights, num: int) -> None:
    assert filters.top_k(large_weights, num).tolist() == reference.top_k(large_weights.tolist(), num)


def test_top_k_ranks_any_values() -> None:
    assert filters.top_k(float32([-np.inf, -5, -1, -np.inf, -3]), 4).tolist() == [0, 1, 2, 4]


@given(small_weights, shares)
def test_top_p_is_the_smallest_head_that_reaches_the_share(weights: filters.Weights, share: float) -> None:
    assert filters.top_p(weights, share).tolist() == reference.top_p(weights.tolist(), share)


@pytest.mark.parametrize("share", [1 / 64, 0.5, 0.75, 61 / 64, 1 - 1 / 1024])
def test_top_p_of_many(large_weights: filters.Weights, share: float) -> None:
    order = reference.ranking(large_weights.tolist())
    sums = large_weights.astype(np.float64)[order].cumsum()
    num = int(np.searchsorted(sums, share * sums[-1])) + 1
    assert filters.top_p(large_weights, share).tolist() == sorted(order[:num])


@pytest.mark.parametrize("share", [0.0, 1e-12, 1e-300])
def test_top_p_keeps_at_least_the_best(large_weights: filters.Weights, share: float) -> None:
    assert filters.top_p(large_weights, share).tolist() == [int(large_weights.argmax())]


def test_top_p_of_nothing_in_a_flat_vocabulary() -> None:
    assert filters.top_p(np.ones(20_000, dtype=np.float32), 0.0).tolist() == [0]


def test_top_p_just_below_one_keeps_all_that_count(large_weights: filters.Weights) -> None:
    kept = filters.top_p(large_weights, 1 - 1e-16)
    assert set(np.flatnonzero(large_weights)) <= set(kept)


@given(st.integers(0, 2**32), st.floats(0.5, 8), shares)
def test_top_p_of_a_softmax(seed: int, spread: float, share: float) -> None:
    """Rounding may move the border by one token, no further."""
    logits = np.random.default_rng(seed).normal(0, spread, 3000).astype(np.float32)
    weights = np.exp(logits - logits.max())
    kept = filters.top_p(weights, share)
    probabilities = weights.astype(np.float64) / weights.sum(dtype=np.float64)
    mass, least = probabilities[kept].sum(), probabilities[kept].min()
    assert mass >= share - 1e-6
    assert mass - least <= share + 1e-6
    assert np.delete(probabilities, kept).max(initial=0) <= least


@given(small_weights, shares)
def test_min_p_compares_with_the_best(weights: filters.Weights, share: float) -> None:
    assert filters.min_p(weights, share).tolist() == reference.min_p(weights.tolist(), share)


@given(small_weights, st.integers(0, 64).map(lambda n: n / 64))
def test_xtc_removes_the_top_but_the_least_of_it(weights: filters.Weights, threshold: float) -> None:
    removed = filters.xtc(weights, threshold)
    assert removed.tolist() == reference.xtc(weights.tolist(), threshold)
    assert np.delete(weights, removed).sum() > 0


@pytest.mark.parametrize(
    ("weights", "threshold", "removed"),
    [
        ([50, 30, 15, 5], 0.1, [0, 1]),
        ([50, 30, 15, 5], 0.3, [0]),
        ([50, 30, 15, 5], 0.31, []),
        ([50, 30, 15, 5], 0.6, []),
        ([5, 15, 30, 50], 0.15, [2, 3]),
        ([25, 25, 25, 25], 0.25, [0, 1, 2]),
        ([4, 0, 0, 4], 0.0, [0]),
        ([7, 0], 0.0, []),
    ],
)
def test_xtc_examples(weights: list[float], threshold: float, removed: list[int]) -> None:
    assert filters.xtc(float32(weights), threshold).tolist() == removed


def test_filters_leave_their_input_alone(large_weights: filters.Weights) -> None:
    large_weights.setflags(write=False)
    for kept in (
        filters.top_k(large_weights, 40),
        filters.top_p(large_weights, 0.9),
        filters.min_p(large_weights, 0.1),
        filters.xtc(large_weights, 0.01),
    ):
        assert (np.diff(kept) > 0).all()
