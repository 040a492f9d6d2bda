"""Wishes held against a model: who speaks first, what is cut to the context, what is refused by name."""

from typing import Any

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import ContextLengthExceeded, InvalidRequest
from proxy_inference_engine.models.profile import Profile
from proxy_inference_engine.runners.fake import ByteTokenizer
from proxy_inference_engine.served.ask import LimitWishes, SamplingWishes
from proxy_inference_engine.served.request import (
    Breakers,
    check_prompt,
    make_limits,
    make_sampling,
    make_state_sampling,
)
from proxy_inference_engine.types import Sampling

TOKENIZER = ByteTokenizer()


def test_breakers_are_the_tokens_that_contain_them() -> None:
    breakers = Breakers(TOKENIZER)
    assert breakers.ids(None) >= {ord("\n"), ord(":"), ord('"'), ord("*")}
    assert breakers.ids(["im_"]) == {257, 258}
    assert breakers.ids(["not there"]) == frozenset()
    assert breakers.ids([]) == frozenset()


def sampling(wishes: SamplingWishes, defaults: Profile | None = None) -> Sampling:
    return make_sampling(wishes, defaults or Profile(), TOKENIZER, Breakers(TOKENIZER))


def test_request_over_model_over_ours() -> None:
    model = Profile(temperature=0.2, top_p=0.9, top_k=40)
    mixed = sampling(SamplingWishes(temperature=0, seed=5), model)
    assert (mixed.temperature, mixed.top_p, mixed.top_k, mixed.seed) == (0, 0.9, 40, 5)
    ours = sampling(SamplingWishes())
    assert (ours.temperature, ours.top_p, ours.top_k, ours.min_p) == (1, 1, 0, 0)


def test_without_a_seed_each_request_differs() -> None:
    assert len({sampling(SamplingWishes()).seed for _ in range(20)}) == 20
    assert sampling(SamplingWishes()).takes_any_seed and not sampling(SamplingWishes(seed=5)).takes_any_seed


@pytest.mark.parametrize(
    ("fields", "max_tokens", "expected"),
    [
        ({}, None, 90),
        ({}, 5, 5),
        ({}, 2**62, 90),
        ({}, 0, 0),
        ({"min_tokens": 5}, 5, 5),
        ({"min_tokens": 90}, None, 90),
    ],
)
def test_limits_are_cut_to_the_context(fields: dict[str, Any], max_tokens: int | None, expected: int) -> None:
    assert make_limits(LimitWishes(max_tokens, **fields), 10, 100, TOKENIZER).max_tokens == expected


@pytest.mark.parametrize(
    ("fields", "max_tokens", "param"),
    [
        ({"min_tokens": 6}, 5, "min_tokens"),
        ({"min_tokens": 91}, None, "min_tokens"),
        ({"stop_token_ids": [260]}, 5, "stop_token_ids"),
    ],
)
def test_limits_refuse(fields: dict[str, Any], max_tokens: int | None, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make_limits(LimitWishes(max_tokens, **fields), 10, 100, TOKENIZER)
    assert caught.value.param == param


def test_bias_outside_the_vocabulary_is_refused() -> None:
    sampling(SamplingWishes(logit_bias={259: 1}))
    with pytest.raises(InvalidRequest) as caught:
        sampling(SamplingWishes(logit_bias={260: 1}))
    assert caught.value.param == "logit_bias"


def test_prompts_have_to_fit() -> None:
    check_prompt([1] * 99, 100, "prompt", needs_answer=True)
    check_prompt([1] * 100, 100, "prompt", needs_answer=False)
    with pytest.raises(ContextLengthExceeded) as caught:
        check_prompt([1] * 100, 100, "prompt", needs_answer=True)
    assert "100 tokens" in caught.value.message and caught.value.param == "prompt"
    with pytest.raises(InvalidRequest):
        check_prompt([], 100, "prompt", needs_answer=True)


def test_the_operator_replaces_only_what_he_named() -> None:
    table = {"tool_call": {"temperature": 0}, "reasoning": {"top_p": 0.9, "top_k": 20}, "structured": {}}
    config = Config.model_validate({"state_sampling": table})
    assert config.state_sampling is not None
    wanted = Sampling(seed=5, temperature=0.7, top_k=3, frequency_penalty=0.5)
    assert make_state_sampling(wanted, config.state_sampling.overrides()) == {
        "tool_call": Sampling(seed=5, temperature=0.0, top_k=3, frequency_penalty=0.5),
        "reasoning": Sampling(seed=5, temperature=0.7, top_k=20, top_p=0.9, frequency_penalty=0.5),
    }
    assert make_state_sampling(wanted, {}) == {}
