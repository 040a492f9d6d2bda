"""One request asks for a bounded number of log-probabilities, which is known before anything is computed."""

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.served import request as served_request
from proxy_inference_engine.served.ask import Ask, LimitWishes, RawPrompt
from proxy_inference_engine.served.request import MAX_LOGPROBS, bounded, check_logprobs
from proxy_inference_engine.types import Limits, Request, Sampling


def ask(num_choices: int, num_top: int | None, max_tokens: int | None, **fields: int | None) -> Ask:
    return Ask(
        "id",
        "anna",
        RawPrompt("x"),
        limits=LimitWishes(max_tokens),
        num_choices=num_choices,
        num_top_logprobs=num_top,
        name_param=lambda param: f"<{param}>",
        **fields,  # type: ignore[arg-type]
    )


def request(made: Ask, num_prompt_tokens: int = 1) -> Request:
    assert made.limits.max_tokens is not None
    return Request(
        made.id,
        made.tenant,
        (1,) * num_prompt_tokens,
        Sampling(1),
        Limits(made.limits.max_tokens),
        num_choices=made.num_choices,
        num_top_logprobs=made.num_top_logprobs,
        num_prompt_logprobs=made.num_prompt_logprobs,
    )


@pytest.mark.parametrize(
    ("asks", "is_refused"),
    [
        ([ask(1, 20, 95_000)], False),
        ([ask(16, 20, 5_900)], False),
        ([ask(16, 20, 8_000)], True),  # 148 MiB
        ([ask(16, None, 1_000_000)], False),
        ([ask(16, 0, 125_000)], False),
        ([ask(16, 0, 125_001)], True),
        ([ask(1, 5, 3_000)] * 100, False),
        ([ask(1, 5, 3_000)] * 120, True),
        ([ask(1, 20, 20_000, num_writings=5)], True),
        ([ask(1, 20, 19_000, num_writings=5)], False),
    ],
)
def test_choices_times_tokens_times_alternatives_are_bounded(asks: list[Ask], is_refused: bool) -> None:
    requests = list(map(request, asks))
    if not is_refused:
        check_logprobs(asks, requests)
        return
    with pytest.raises(InvalidRequest) as caught:
        check_logprobs(asks, requests)
    assert caught.value.param == "<top_logprobs>" and str(MAX_LOGPROBS) in caught.value.message


def test_a_prompt_that_is_scored_counts_too() -> None:
    made = ask(10, 5, 1, num_prompt_logprobs=5)
    check_logprobs([made], [request(made, 30_000)])
    with pytest.raises(InvalidRequest):
        check_logprobs([made], [request(made, 40_000)])


@pytest.mark.parametrize(
    ("asks", "expected"),
    [
        ([ask(1, None, None)], None),
        ([ask(1, 20, None)], 47),
        ([ask(4, 4, None)], 50),
        ([ask(4, 4, None)] * 10, 5),
        ([ask(20, 20, None)] * 50, 1),
        ([ask(1, 20, 5_000)], 5_000),
    ],
)
def test_where_no_limit_is_named_there_is_one(
    monkeypatch: pytest.MonkeyPatch, asks: list[Ask], expected: int | None
) -> None:
    monkeypatch.setattr(served_request, "MAX_LOGPROBS", 1000)
    assert {each.limits.max_tokens for each in bounded(asks)} == {expected}
