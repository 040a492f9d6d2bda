"""The short way of `top_p` beside the long one: the same token wherever it answers, and it mostly does."""

import numpy as np
import pytest

from proxy_inference_engine.sampling import filters
from proxy_inference_engine.sampling.nucleus import draw_nucleus
from proxy_inference_engine.sampling.randomness import draw


@pytest.mark.parametrize("spread", [0.0, 0.5, 2.0, 4.0])
@pytest.mark.parametrize("share", [1e-9, 0.1, 0.9, 0.999])
@pytest.mark.parametrize("num", [1, 2, 50, 5000])
def test_the_same_as_the_long_way(num: int, share: float, spread: float) -> None:
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


def test_equals_at_the_border_take_the_long_way() -> None:
    weights = np.array([1, 4, 1, 1], np.float32)
    assert draw_nucleus(weights, 7.0, 0.6, 0.5) is None  # one of the three ones belongs
    assert draw_nucleus(weights, 7.0, 0.5, 0.99) == 1
    assert draw_nucleus(weights, 7.0, 0.999, 0.99) == 3


def test_the_number_decides() -> None:
    weights = np.array([2, 0, 3, 5], np.float32)
    numbers = (0.0, 0.19, 0.21, 0.49, 0.51, 0.999999)
    assert [draw_nucleus(weights, 10.0, 0.99, number) for number in numbers] == [0, 0, 2, 2, 3, 3]
