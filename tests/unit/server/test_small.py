"""Ids, names of parameters, JSON, breakers, conversions: the small parts."""

import math
from typing import Any

import pytest

from proxy_inference_engine.errors import ContextLengthExceeded, InvalidRequest
from proxy_inference_engine.models.profile import Profile
from proxy_inference_engine.runners.fake import ByteTokenizer
from proxy_inference_engine.server.breakers import Breakers
from proxy_inference_engine.server.convert.request import check_prompt, make_limits, make_sampling
from proxy_inference_engine.server.ids import new_id, request_id
from proxy_inference_engine.server.jsons import dumps
from proxy_inference_engine.server.param import param_name, shorten
from proxy_inference_engine.server.schemas.base import validate
from proxy_inference_engine.server.schemas.chat import ChatRequest
from proxy_inference_engine.types import Limits, Sampling

TOKENIZER = ByteTokenizer()


@pytest.mark.parametrize("wanted", [b"a", b"A-b_c.9", b"x" * 128])
def test_a_harmless_request_id_is_echoed(wanted: bytes) -> None:
    assert request_id(wanted) == wanted.decode()


@pytest.mark.parametrize("wanted", [None, b"", b"x" * 129, b"a b", b"a\r\nb", b"a\n", b"\xe9", "٣".encode(), b"a/b"])
def test_other_request_ids_are_replaced(wanted: bytes | None) -> None:
    assert request_id(wanted).startswith("req-")


def test_ids_differ() -> None:
    assert len({new_id("x-") for _ in range(100)}) == 100


def test_param_names() -> None:
    assert param_name(["messages", 0, "content", 1, "text"]) == "messages[0].content[1].text"
    assert param_name([]) is None
    assert len(param_name(["k" * 1000] * 100) or "") < 1200
    assert shorten("a\nb" * 1000, 5) == "a?ba?…"


def test_json_is_compact_and_finite() -> None:
    assert dumps({"a": ["é", 1.5, None]}) == '{"a":["é",1.5,null]}'
    assert dumps("\u2028\x85\u2029\n") == '"\\u2028\\u0085\\u2029\\n"'
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumps(math.nan)


def test_breakers_are_the_tokens_that_contain_them() -> None:
    breakers = Breakers(TOKENIZER)
    assert breakers.ids(None) >= {ord("\n"), ord(":"), ord('"'), ord("*")}
    assert breakers.ids(["im_"]) == {257, 258}
    assert breakers.ids(["not there"]) == frozenset()
    assert breakers.ids([]) == frozenset()


def chat(**fields: Any) -> ChatRequest:
    return validate(ChatRequest, {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields})


def sampling(body: ChatRequest, defaults: Profile | None = None) -> Sampling:
    return make_sampling(body, defaults or Profile(), TOKENIZER, Breakers(TOKENIZER))


def test_request_over_model_over_ours() -> None:
    model = Profile(temperature=0.2, top_p=0.9, top_k=40)
    mixed = sampling(chat(temperature=0, seed=5), model)
    assert (mixed.temperature, mixed.top_p, mixed.top_k, mixed.seed) == (0, 0.9, 40, 5)
    ours = sampling(chat())
    assert (ours.temperature, ours.top_p, ours.top_k, ours.min_p) == (1, 1, 0, 0)


def test_without_a_seed_each_request_differs() -> None:
    assert len({sampling(chat()).seed for _ in range(20)}) == 20


def test_every_sampling_field_arrives() -> None:
    fields = {
        "seed": 3, "temperature": 0.3, "top_k": 4, "top_p": 0.4, "min_p": 0.1, "repetition_penalty": 1.1,
        "repetition_window": 9, "frequency_penalty": 0.5, "presence_penalty": -0.5, "dry_multiplier": 0.8,
        "dry_base": 2.0, "dry_allowed_length": 3, "xtc_probability": 0.2, "xtc_threshold": 0.3,
    }  # fmt: skip
    made = sampling(chat(**fields, logit_bias={"5": -2}, dry_sequence_breakers=["a"]))
    assert {name: getattr(made, name) for name in fields} == fields
    assert made.logit_bias == {5: -2.0}
    assert made.dry_breakers == {ord("a"), *(id_ for name, id_ in TOKENIZER.specials.items() if "a" in name)}
    untouched = {name for name in Sampling.__slots__ if getattr(made, name) == getattr(Sampling(seed=0), name)}
    assert untouched == set()


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
    assert make_limits(chat(**fields), max_tokens, 10, 100, TOKENIZER).max_tokens == expected


def test_every_limit_arrives() -> None:
    body = chat(min_tokens=2, stop_token_ids=[5, 6], ignore_eos=True)
    assert make_limits(body, 3, 10, 100, TOKENIZER) == Limits(3, 2, frozenset({5, 6}), True)


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
        make_limits(chat(**fields), max_tokens, 10, 100, TOKENIZER)
    assert caught.value.param == param


def test_bias_outside_the_vocabulary_is_refused() -> None:
    sampling(chat(logit_bias={"259": 1}))
    with pytest.raises(InvalidRequest) as caught:
        sampling(chat(logit_bias={"260": 1}))
    assert caught.value.param == "logit_bias"


def test_prompts_have_to_fit() -> None:
    check_prompt([1] * 99, 100, "prompt", needs_answer=True)
    check_prompt([1] * 100, 100, "prompt", needs_answer=False)
    with pytest.raises(ContextLengthExceeded) as caught:
        check_prompt([1] * 100, 100, "prompt", needs_answer=True)
    assert "100 tokens" in caught.value.message and caught.value.param == "prompt"
    with pytest.raises(InvalidRequest):
        check_prompt([], 100, "prompt", needs_answer=True)
