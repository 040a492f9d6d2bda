"""Buckets on a clock that moves when it is told to."""

import pytest

from proxy_inference_engine.config.limits import KeyLimits, LimitTable
from proxy_inference_engine.errors import RateLimited
from proxy_inference_engine.server.apis.messages.errors import limit_headers
from proxy_inference_engine.server.http.limits import Limiter, RateLimits, Standing, duration, openai_headers
from tests.clock import Clock


def limiter(clock: Clock, **limits: int) -> Limiter:
    return Limiter(KeyLimits(**limits), clock)


def refused_for(limited: Limiter) -> int:
    with pytest.raises(RateLimited) as caught:
        limited.admit()
    return caught.value.retry_after_s


def test_requests_refill_evenly() -> None:
    clock = Clock()
    limited = limiter(clock, requests_per_minute=6)
    for _ in range(6):
        limited.admit()
    assert refused_for(limited) == 10
    clock.sleep(9.0)
    assert refused_for(limited) == 1
    clock.sleep(1.0)
    limited.admit()
    assert refused_for(limited) == 10, "what was refused cost nothing"
    clock.sleep(3600)
    for _ in range(6):
        limited.admit()
    refused_for(limited)


def test_tokens_are_taken_when_they_are_known() -> None:
    clock = Clock()
    limited = limiter(clock, tokens_per_minute=600)
    limited.admit()
    limited.charge(650)
    assert refused_for(limited) == 6, "51 are missing, ten come in a second"
    assert limited.standings() == [Standing("tokens", 600, 0, 65.0)]
    clock.sleep(5.1)
    limited.admit()


@pytest.mark.parametrize("amount", [1, 7, 10**9])
def test_a_debt_is_paid_in_full(amount: int) -> None:
    clock = Clock()
    limited = limiter(clock, tokens_per_minute=60)
    limited.charge(60 + amount)
    clock.sleep(amount)
    refused_for(limited)
    clock.sleep(1)
    limited.admit()


def test_the_tightest_limit_counts() -> None:
    clock = Clock()
    limited = limiter(clock, requests_per_minute=100, requests_per_day=3, tokens_per_minute=10)
    for _ in range(3):
        limited.admit()
    assert refused_for(limited) == 24 * 3600 // 3
    assert [one[:3] for one in limited.standings()] == [("requests", 3, 0), ("tokens", 10, 10)]


def test_keys_have_buckets_of_their_own() -> None:
    own = {"anna": KeyLimits(requests_per_minute=2), "free": KeyLimits(requests_per_minute=0)}
    limits = RateLimits(LimitTable(common=KeyLimits(requests_per_minute=1), by_name=own), Clock())
    anna, ben = limits.of("anna"), limits.of("ben")
    assert anna is not None and ben is not None and limits.of("free") is None
    assert limits.of("anna") is anna and limits.of("carol") is not ben
    anna.admit()
    anna.admit()
    ben.admit()
    for each in (anna, ben):
        refused_for(each)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (0.0123, "13ms"), (1, "1s"), (8.64, "8.64s"), (59.999, "60s"), (60, "1m0s"), (359.2, "6m0s"),
     (3600, "1h0m0s"), (86400, "24h0m0s")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_headers_of_both_apis() -> None:
    standings = [Standing("requests", 6, 5, 10.0), Standing("tokens", 600, 0, 65.0)]
    assert dict(openai_headers(standings)) == {
        b"x-ratelimit-limit-requests": b"6",
        b"x-ratelimit-remaining-requests": b"5",
        b"x-ratelimit-reset-requests": b"10s",
        b"x-ratelimit-limit-tokens": b"600",
        b"x-ratelimit-remaining-tokens": b"0",
        b"x-ratelimit-reset-tokens": b"1m5s",
    }
    theirs = dict(limit_headers(standings))
    assert theirs[b"anthropic-ratelimit-requests-limit"] == b"6"
    assert theirs[b"anthropic-ratelimit-tokens-remaining"] == b"0"
    assert theirs[b"anthropic-ratelimit-tokens-reset"].endswith(b"Z") and len(theirs) == 6
