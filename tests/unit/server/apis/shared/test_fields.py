"""Fields that every generating API shares: all of them become wishes, and all wishes reach the engine."""

import dataclasses
from typing import Any

from proxy_inference_engine.models.profile import Profile
from proxy_inference_engine.runners.fake import ByteTokenizer
from proxy_inference_engine.served.ask import LimitWishes, SamplingWishes
from proxy_inference_engine.served.request import Breakers, make_limits, make_sampling
from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.shared.fields import (
    GenerationFields,
    WithoutEffect,
    limit_wishes,
    sampling_wishes,
    validate,
)
from proxy_inference_engine.types import Limits, Sampling

TOKENIZER = ByteTokenizer()
DERIVED = {"takes_any_seed"}  # that there was no wish, which is none itself


def chat(**fields: Any) -> ChatRequest:
    return validate(ChatRequest, {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields})


def sampling(body: ChatRequest) -> Sampling:
    return make_sampling(sampling_wishes(body), Profile(), TOKENIZER, Breakers(TOKENIZER))


def test_every_sampling_field_arrives() -> None:
    fields = {
        "seed": 3, "temperature": 0.3, "top_k": 4, "top_p": 0.4, "min_p": 0.1, "repetition_penalty": 1.1,
        "repetition_window": 9, "frequency_penalty": 0.5, "presence_penalty": -0.5, "dry_multiplier": 0.8,
        "dry_base": 2.0, "dry_allowed_length": 3, "xtc_probability": 0.2, "xtc_threshold": 0.3,
        "typical_p": 0.9, "top_n_sigma": 2.0, "dynatemp_range": 0.2, "dynatemp_exponent": 2.0,
        "mirostat": 2, "mirostat_tau": 3.0, "mirostat_eta": 0.2,
    }  # fmt: skip
    made = sampling(chat(**fields, logit_bias={"5": -2}, dry_sequence_breakers=["a"]))
    assert {name: getattr(made, name) for name in fields} == fields
    assert made.logit_bias == {5: -2.0}
    assert made.dry_breakers == {ord("a"), *(id_ for name, id_ in TOKENIZER.specials.items() if "a" in name)}
    untouched = {name for name in Sampling.__slots__ if getattr(made, name) == getattr(Sampling(seed=0), name)}
    assert untouched == DERIVED
    assert sampling(chat()).takes_any_seed


def test_every_limit_arrives() -> None:
    body = chat(min_tokens=2, stop_token_ids=[5, 6], ignore_eos=True)
    assert make_limits(limit_wishes(body, 3), 10, 100, TOKENIZER) == Limits(3, 2, frozenset({5, 6}), True)


def names_of(plain: type) -> set[str]:
    return {field.name for field in dataclasses.fields(plain)}


def test_whatever_the_sampler_knows_can_be_wished_for() -> None:
    """A new field of `Sampling` or of a body that nobody wires up would be accepted and ignored."""
    under_another_name = {"dry_breakers": "dry_sequence_breakers"}
    wanted = {under_another_name.get(name, name) for name in names_of(Sampling) - DERIVED}
    assert names_of(SamplingWishes) == wanted
    assert names_of(SamplingWishes) <= GenerationFields.model_fields.keys()


def test_whatever_limits_an_answer_can_be_wished_for() -> None:
    assert names_of(LimitWishes) == names_of(Limits) | {"stop"}
    assert names_of(LimitWishes) - {"max_tokens"} <= GenerationFields.model_fields.keys()


def test_a_wish_starts_where_its_field_does() -> None:
    body = validate(GenerationFields, {"model": "m"})
    assert sampling_wishes(body) == SamplingWishes()
    assert limit_wishes(body, None) == LimitWishes()


def test_every_field_of_a_body_is_a_wish_or_says_how_to_answer() -> None:
    """A field that is in none of these sets is new: say what becomes of it."""
    how = {"model", "n", "stream", "stream_options", "service_tier", "priority"}
    wishes = names_of(SamplingWishes) | names_of(LimitWishes) - {"max_tokens"}
    assert set(GenerationFields.model_fields) == wishes | how | set(WithoutEffect.model_fields)
