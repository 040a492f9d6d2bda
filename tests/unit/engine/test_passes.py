"""How large a chunk of prompt a step gets, from what steps cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_inference_engine.engine.passes import Pace

MANY = 10_000


def measured(*, token_ms: float, row_ms: float = 0.0) -> Pace:
    """A pace with a target of 200 ms, 1 s alone, that saw these costs."""
    pace = Pace(target_s=0.2, alone_target_s=1.0)
    if row_ms:
        pace.observe(10, 0, 10 * row_ms / 1000)
    pace.observe(0, 100, 100 * token_ms / 1000)
    return pace


@pytest.mark.parametrize(("num_decoding", "max_tokens", "expected"), [(0, MANY, 64), (8, MANY, 64), (0, 40, 40)])
def test_before_anything_was_measured_the_first_chunk_is_small(
    num_decoding: int, max_tokens: int, expected: int
) -> None:
    assert Pace(target_s=0.2, alone_target_s=1.0).chunk(num_decoding, max_tokens) == expected


@pytest.mark.parametrize(
    ("num_decoding", "expected"),
    [
        (0, 500),  # 1000 ms at 2 ms
        (1, 95),  # 200 ms less one row of 10 ms
        (10, 50),
        (19, 23),  # 5 tokens' time is left, but a prompt may cost a quarter of what the rows do
        (100, 125),
    ],
)
def test_a_chunk_fills_what_the_decoding_rows_leave_of_the_target(num_decoding: int, expected: int) -> None:
    assert measured(token_ms=2, row_ms=10).chunk(num_decoding, MANY) == pytest.approx(expected, abs=1)


def test_a_chunk_is_no_larger_than_a_batch() -> None:
    assert measured(token_ms=0.001).chunk(0, 512) == 512


def test_a_chunk_never_exceeds_the_batch() -> None:
    pace = Pace(target_s=0.2, alone_target_s=1.0)
    pace.observe(0, 100, 0.1)
    assert pace.chunk(8, 10) <= 10


@given(
    num_decoding=st.integers(0, 64),
    max_tokens=st.integers(16, 512),
    costs=st.lists(st.tuples(st.integers(0, 64), st.integers(0, 512), st.floats(0, 10)), max_size=20),
)
def test_whatever_was_measured_a_chunk_lies_between_its_bounds(
    num_decoding: int, max_tokens: int, costs: list[tuple[int, int, float]]
) -> None:
    pace = Pace(target_s=0.2, alone_target_s=1.0)
    for num_rows, num_tokens, seconds in costs:
        pace.observe(num_rows, num_tokens, seconds)
    assert 16 <= pace.chunk(num_decoding, max_tokens) <= max_tokens


def test_measurements_are_smoothed() -> None:
    pace = measured(token_ms=1)
    pace.observe(0, 100, 100 * 0.011)  # an outlier ten times as slow moves the estimate by a fifth: 3 ms
    assert pace.chunk(0, MANY) == pytest.approx(1000 / 3, abs=1)


def test_a_lasting_change_is_learnt() -> None:
    pace = measured(token_ms=1)
    for _ in range(50):
        pace.observe(0, 100, 100 * 0.004)
    assert pace.chunk(0, MANY) == pytest.approx(250, abs=2)


def test_the_rows_of_a_mixed_step_are_not_blamed_on_its_prompt() -> None:
    pace = measured(token_ms=2, row_ms=10)
    before = pace.chunk(0, MANY)
    pace.observe(10, 50, 10 * 0.010 + 50 * 0.002)
    assert pace.chunk(0, MANY) == pytest.approx(before, abs=1)


def test_a_mixed_step_that_was_cheaper_than_its_rows_still_counts_a_tenth_for_the_prompt() -> None:
    pace = Pace(target_s=0.2, alone_target_s=1.0)
    pace.observe(10, 0, 1.0)
    pace.observe(10, 100, 1.0)
    assert pace.chunk(0, MANY) == pytest.approx(1000, abs=1)


def test_a_tiny_chunk_says_nothing_about_the_cost_of_tokens() -> None:
    pace = measured(token_ms=1)
    pace.observe(0, 15, 10.0)
    assert pace.chunk(0, MANY) == pytest.approx(1000, abs=1)


def test_an_empty_step_is_ignored() -> None:
    pace = measured(token_ms=1, row_ms=10)
    pace.observe(0, 0, 10.0)
    assert pace.chunk(1, MANY) == pytest.approx(190, abs=1)


def test_one_slow_step_does_not_leave_chunks_small() -> None:
    """Chunks of the smallest size must still teach that the machine is fast again."""
    pace = measured(token_ms=500)
    assert pace.chunk(0, MANY) == 16
    for _ in range(40):
        num_tokens = pace.chunk(0, 512)
        pace.observe(0, num_tokens, num_tokens * 0.001)
    assert pace.chunk(0, MANY) > 500


def test_small_chunks_do_not_make_the_next_one_smaller() -> None:
    """Each costs a pass over the weights, which is not the cost of its tokens."""
    pace = measured(token_ms=2, row_ms=10)
    for _ in range(20):
        pace.observe(8, 20, 8 * 0.010 + 0.020 + 20 * 0.002)
    assert pace.chunk(8, MANY) == pytest.approx((0.2 - 0.08 - 0.02) / 0.002, rel=0.1)


def test_what_a_step_costs_anyway_is_not_blamed_on_tokens() -> None:
    """Chunks of one size say nothing of it, so another size is tried: the costs come apart."""
    pace = Pace(target_s=0.2, alone_target_s=1.0)
    pace.observe(8, 0, 0.1)
    pace.observe(8, 16, 0.1 + 0.3 + 16 * 0.002)
    assert pace.chunk(8, MANY) == 16, "it looks as if a token cost 21 ms"
    for _ in range(10):
        num_tokens = pace.chunk(8, 512)
        pace.observe(8, num_tokens, 0.1 + 0.3 + num_tokens * 0.002)
    # A quarter of the 400 ms that a step takes anyway, at 2 ms a token.
    assert pace.chunk(8, MANY) == pytest.approx(50, abs=2)


def test_a_prompt_s_share_grows_with_its_age() -> None:
    pace = measured(token_ms=2, row_ms=10)
    sizes = [pace.chunk(40, MANY, age) for age in range(0, 80, 8)]
    assert sizes == sorted(sizes) and sizes[0] == 50 and sizes[-1] == 200, (
        "from a quarter of the rows' time to all of it"
    )
    assert pace.chunk(1, MANY, 1000) == 95, "where there is time left, age changes nothing"
