"""How KV memory is divided: within the limit, the full context always, short slots before fewer slots."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.plan import choose_context, plan_lanes

KIB = 1024  # bytes a token, so that sizes in tokens are easy to read


def plan(context_tokens: int, num_slots: int, max_tokens: int) -> tuple[Lane, ...]:
    return plan_lanes(context_tokens=context_tokens, num_slots=num_slots, token_bytes=KIB, max_bytes=max_tokens * KIB)


@pytest.mark.parametrize(
    ("context_tokens", "num_slots", "max_tokens", "lanes"),
    [
        # all fits: wide slots, and long lanes as far as memory goes, four at most
        (8192, 16, 32_768 + 8192, (Lane(16, 2048), Lane(1, 8192))),
        (8192, 16, 32_768 + 3 * 8192 - 1, (Lane(16, 2048), Lane(1, 8192), Lane(1, 8192))),
        (8192, 16, 1_000_000, (Lane(16, 2048), *[Lane(1, 8192)] * 4)),
        # a small context needs no long lane
        (2048, 16, 32_768, (Lane(16, 2048),)),
        (512, 16, 1_000_000, (Lane(16, 512),)),
        # shorter slots first
        (8192, 16, 32_768 + 8191, (Lane(16, 1024), *[Lane(1, 8192)] * 2)),
        (8192, 16, 8192 + 8192, (Lane(16, 512), Lane(1, 8192))),
        (2048, 16, 32_767, (Lane(16, 1024), *[Lane(1, 2048)] * 4)),
        # then fewer of them
        (8192, 16, 8192 + 8191, (Lane(15, 512), Lane(1, 8192))),
        (8192, 16, 8192 + 512, (Lane(1, 512), Lane(1, 8192))),
        # in the end one slot that holds the context
        (8192, 16, 8192 + 511, (Lane(1, 8192),)),
        (8192, 16, 8192, (Lane(1, 8192),)),
        (512, 16, 3 * 512, (Lane(3, 512),)),
    ],
)
def test_lanes(context_tokens: int, num_slots: int, max_tokens: int, lanes: tuple[Lane, ...]) -> None:
    assert plan(context_tokens, num_slots, max_tokens) == lanes


def test_the_context_is_rounded_up_to_what_the_library_allocates() -> None:
    assert plan(1000, 4, 100_000) == (Lane(4, 1024),)


def test_a_context_that_does_not_fit_is_one_plain_line() -> None:
    with pytest.raises(StartupError) as info:
        plan(8192, 16, 8191)
    assert info.value.message == (
        "a context of 8192 tokens needs 8 MiB of KV memory, 7 MiB are there: lower --context or raise --kv-memory"
    )


@given(
    context_tokens=st.integers(1, 40_000),
    num_slots=st.integers(1, 64),
    max_tokens=st.integers(256, 400_000),
)
def test_whatever_is_asked_for_fits_and_holds_the_context(context_tokens: int, num_slots: int, max_tokens: int) -> None:
    assume(-(-context_tokens // 256) * 256 <= max_tokens)
    lanes = plan(context_tokens, num_slots, max_tokens)
    assert sum(lane.num_slots * lane.slot_tokens for lane in lanes) <= max_tokens
    assert 1 <= lanes[0].num_slots <= num_slots
    assert lanes[-1].slot_tokens >= context_tokens
    assert list(lanes) == sorted(lanes, key=lambda lane: lane.slot_tokens), "from the widest to the longest"


@pytest.mark.parametrize(
    ("wanted", "known", "max_tokens", "context"),
    [
        (None, 8192, 8192, 8192),  # all of it fits
        (None, 131_072, 40_000, 19_968),  # half of the memory, in whole units
        (None, 131_072, 1000, 2048),  # too little: the plan refuses it with the numbers
        (None, 1024, 1000, 1024),
        (4096, 131_072, 40_000, 4096),
        (32_768, 131_072, 40_000, 32_768),  # asked for: more than half
        (500_000, 131_072, 40_000, 131_072),
    ],
)
def test_a_context_that_fits_is_chosen(wanted: int | None, known: int, max_tokens: int, context: int) -> None:
    told: list[str] = []
    assert choose_context(wanted, known, KIB, max_tokens * KIB, told.append) == context
    assert bool(told) == (context < known if wanted is None else wanted > known)


@pytest.mark.parametrize("context_tokens", [768, 1280, 1792])
def test_slots_are_of_a_size_the_library_allocates(context_tokens: int) -> None:
    for max_tokens in range(context_tokens, 20 * context_tokens, 256):
        lanes = plan_lanes(context_tokens=context_tokens, num_slots=16, token_bytes=1024, max_bytes=max_tokens * 1024)
        assert all(lane.slot_tokens % 256 == 0 for lane in lanes), lanes
