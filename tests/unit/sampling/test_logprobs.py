import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_inference_engine.runners.base import Logits
from proxy_inference_engine.sampling.logprobs import logprob_of, prompt_logprobs
from proxy_inference_engine.types import Logprob
from tests.unit.sampling.reference import float32

logits_of_any_size = st.lists(st.floats(-60, 60, width=32) | st.just(-math.inf), min_size=1, max_size=50).filter(
    lambda values: max(values) > -math.inf
)


def _exact(logits: Logits) -> list[float]:
    values = logits.astype(np.float64)
    log_total = float(values.max()) + math.log(np.exp(values - values.max()).sum())
    return [float(value) - log_total for value in values]


@given(logits_of_any_size, st.integers(0, 25), st.data())
def test_agrees_with_float64(values: list[float], num_top: int, data: st.DataObject) -> None:
    logits = float32(values)
    token_id = data.draw(st.integers(0, len(values) - 1))
    exact = [max(value, -9999.0) for value in _exact(logits)]
    result = logprob_of(logits, token_id, num_top)
    assert result.token_id == token_id
    assert result.logprob == pytest.approx(exact[token_id], abs=1e-5)
    ranked = sorted(range(len(values)), key=lambda i: (-values[i], i))[:num_top]
    assert [i for i, _ in result.top] == ranked
    assert [value for _, value in result.top] == pytest.approx([exact[i] for i in ranked], abs=1e-5)


def test_probabilities_of_a_vocabulary_sum_to_one() -> None:
    logits = np.random.default_rng(0).normal(0, 4, 49_152).astype(np.float32)
    result = logprob_of(logits, 0, logits.size)
    assert math.fsum(math.exp(value) for _, value in result.top) == pytest.approx(1, abs=1e-5)
    assert logprob_of(logits, 0, 20).top == result.top[:20]
    values = [value for _, value in result.top]
    assert values == sorted(values, reverse=True)


def test_the_logits_stay_as_they_are() -> None:
    logits = np.random.default_rng(0).normal(0, 4, 5000).astype(np.float32)
    logits.setflags(write=False)
    assert logprob_of(logits, 3, 5).logprob <= 0


def test_a_certain_token_has_probability_one() -> None:
    assert logprob_of(float32([-np.inf, 7, -np.inf]), 1, 1) == Logprob(1, 0.0, ((1, 0.0),))


@pytest.mark.parametrize("broken", [[math.nan, 1], [1, math.inf], [-math.inf, -math.inf], [math.nan, math.nan]])
def test_broken_logits_still_give_a_number(broken: list[float]) -> None:
    assert logprob_of(float32(broken), 1, 2) == Logprob(1, -9999.0)


def test_an_impossible_or_absurdly_unlikely_token_is_clamped() -> None:
    logits = float32([0, -np.inf, -3e38, 3e38])
    assert [logprob_of(logits, i, 0).logprob for i in range(4)] == [-9999.0, -9999.0, -9999.0, 0.0]


def test_a_prompt_is_its_rows_one_by_one_however_it_is_cut() -> None:
    logits = np.random.default_rng(1).normal(0, 3, (7, 1001)).astype(np.float32)
    token_ids = np.arange(7, dtype=np.int32) * 100
    whole = prompt_logprobs(logits, token_ids, 3)
    assert whole == [logprob_of(logits[i].copy(), i * 100, 3) for i in range(7)]
    assert whole == prompt_logprobs(logits[:2], token_ids[:2], 3) + prompt_logprobs(logits[2:], token_ids[2:], 3)


def test_as_many_rows_as_tokens() -> None:
    with pytest.raises(ValueError, match="zip"):
        prompt_logprobs(np.zeros((2, 4), dtype=np.float32), np.zeros(3, dtype=np.int32), 0)
