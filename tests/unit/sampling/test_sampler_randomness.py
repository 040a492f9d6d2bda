import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_inference_engine.sampling import filters
from proxy_inference_engine.sampling.sampler import RandomStream, draw, draw_nucleus, stream_key, uniform
from tests.unit.sampling import reference
from tests.unit.sampling.reference import float32


def test_mixes_as_splitmix64_does() -> None:
    """The first outputs of the published generator for state 1234567, and its 53 bits as a float."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [uniform(1234567, 0, RandomStream(n)) for n in (0, 1)] == [(x >> 11) / 2**53 for x in published[:2]]


@given(st.integers(-(2**63), 2**64), st.integers(0, 200), st.integers(0, 10**6))
def test_uniform_lies_in_the_unit_interval(seed: int, choice: int, position: int) -> None:
    assert 0 <= uniform(stream_key(seed, choice), position) < 1


def test_every_part_of_the_key_matters() -> None:
    numbers = {
        uniform(stream_key(seed, choice), position, stream)
        for seed in (-1, 0, 1, 2, 2**63)
        for choice in range(8)
        for position in range(50)
        for stream in RandomStream
    }
    assert len(numbers) == 5 * 8 * 50 * 2


@pytest.mark.parametrize("along", ["seed", "choice", "position"])
def test_uniform_is_even_and_uncorrelated_along_each_part(along: str) -> None:
    part = {"seed": 5, "choice": 0, "position": 9}
    numbers = []
    for n in range(4000):
        part[along] = n
        numbers.append(uniform(stream_key(part["seed"], part["choice"]), part["position"]))
    counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
    assert ((counts - 200) ** 2 / 200).sum() < 43.8  # chi-square, 19 degrees of freedom, p = 0.001
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.05


def test_streams_are_uncorrelated() -> None:
    key = stream_key(3, 0)
    pairs = [(uniform(key, position), uniform(key, position, RandomStream.XTC)) for position in range(4000)]
    assert abs(np.corrcoef(np.array(pairs).T)[0, 1]) < 0.05


@given(st.lists(st.integers(0, 20), min_size=1, max_size=50).filter(any), st.floats(0, 1, exclude_max=True))
def test_draw_inverts_the_running_sum(weights: list[int], number: float) -> None:
    assert draw(float32(weights), number) == reference.draw(weights, number)


@given(st.integers(513, 3000), st.integers(0, 2**32), st.integers(0, 1023).map(lambda n: n / 1024))
def test_draw_in_blocks_inverts_the_running_sum(num: int, seed: int, number: float) -> None:
    random = np.random.default_rng(seed)
    weights = (random.integers(0, 50, num) * (random.random(num) < 0.3)).astype(np.float32)
    weights[num // 2] += 1024  # a total that is known to be positive
    expected = int(np.searchsorted(weights.cumsum(dtype=np.float64), number * weights.sum(), side="right"))
    drawn = draw(weights, number)
    assert weights[drawn] > 0
    # A number that falls on the border of two tokens may go to either: the fast draw divides by block sums.
    assert drawn == expected or weights[min(drawn, expected) + 1 : max(drawn, expected)].sum() == 0


@pytest.mark.parametrize("num", [3, 512, 513, 1000, 49_152])
@pytest.mark.parametrize("number", [0.0, 0.5, math.nextafter(1.0, 0.0), 1.0])
def test_draw_never_takes_a_weight_of_zero(num: int, number: float) -> None:
    weights = np.zeros(num, dtype=np.float32)
    weights[num // 2] = 1e-30
    assert draw(weights, number) == num // 2
    weights[num // 3] = 0.7
    assert weights[draw(weights, number)] > 0


@pytest.mark.parametrize("num", [8, 600])
def test_draw_takes_each_token_as_often_as_its_weight_says(num: int) -> None:
    weights = np.zeros(num, dtype=np.float32)
    weights[[0, 1, num // 2, num - 1]] = [0.5, 0.1, 0.3, 0.1]
    drawn = [draw(weights, uniform(stream_key(11, 0), position)) for position in range(4000)]
    counts = np.bincount(drawn, minlength=num)[weights > 0]
    expected = weights[weights > 0] * 4000
    assert ((counts - expected) ** 2 / expected).sum() < 16.3  # chi-square, 3 degrees of freedom, p = 0.001


# After `top_p` and nothing else


@pytest.mark.parametrize("spread", [0.0, 0.5, 2.0, 4.0])
@pytest.mark.parametrize("share", [1e-9, 0.1, 0.9, 0.999])
@pytest.mark.parametrize("num", [1, 2, 50, 5000])
def test_the_short_draw_is_the_same_as_the_long_way(num: int, share: float, spread: float) -> None:
    """Wherever it answers, and it mostly does."""
    random = np.random.default_rng(num)
    num_answers = 0
    for _ in range(50):
        weights = np.exp(random.normal(0, spread, num)).astype(np.float32)
        weights[random.random(num) < 0.2] = 0
        weights[random.integers(num)] = 1
        total, number = float(weights.sum()), float(random.random())
        kept = filters.top_p(weights, share, total)
        found = draw_nucleus(weights, total, share, number)
        assert found in (None, int(kept[draw(weights[kept], number)]))
        num_answers += found is not None
    assert num_answers == 50 or spread == 0 or num == 5000


def test_a_broad_nucleus_is_drawn_the_short_way_too() -> None:
    """One of more than a thousand tokens, the last of which have a probability below 1e-4."""
    random = np.random.default_rng(2)
    for _ in range(20):
        weights = random.permutation((np.arange(49_152) + 10.0) ** -1.4).astype(np.float32)
        total, number = float(weights.sum()), float(random.random())
        kept = filters.top_p(weights, 0.9, total)
        assert kept.size > 1024 and weights[kept].min() < 1e-4 * total
        assert draw_nucleus(weights, total, 0.9, number) == kept[draw(weights[kept], number)]


def test_equals_at_the_border_of_the_nucleus_take_the_long_way() -> None:
    weights = np.array([1, 4, 1, 1], np.float32)
    assert draw_nucleus(weights, 7.0, 0.6, 0.5) is None  # one of the three ones belongs
    assert draw_nucleus(weights, 7.0, 0.5, 0.99) == 1
    assert draw_nucleus(weights, 7.0, 0.999, 0.99) == 3


def test_the_number_decides_in_the_nucleus() -> None:
    weights = np.array([2, 0, 3, 5], np.float32)
    numbers = (0.0, 0.19, 0.21, 0.49, 0.51, 0.999999)
    assert [draw_nucleus(weights, 10.0, 0.99, number) for number in numbers] == [0, 0, 2, 2, 3, 3]
