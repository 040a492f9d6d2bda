"""Fields that chat and text completions share, with values that each must refuse, and the bodies they stand in."""

import math
from typing import Any

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.server.apis.shared.fields import RequestSchema, validate

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
CHAT: dict[str, Any] = {"model": "m", "messages": HELLO}
TEXT: dict[str, Any] = {"model": "m", "prompt": "Hello"}
NOT_NUMBERS: list[Any] = ["1", True, [], {}, math.nan, math.inf, -math.inf]
NOT_INTS: list[Any] = ["1", True, 1.5, 1.0, [], 2**64]

SHARED: dict[str, list[Any]] = {
    "model": [1, True, [], {}],
    "n": [*NOT_INTS, 0, -1, 17, 10**9],
    "seed": ["1", True, 1.5, 2**63],
    "temperature": [*NOT_NUMBERS, -0.1, 2.1],
    "top_p": [*NOT_NUMBERS, -0.1, 1.1],
    "min_p": [*NOT_NUMBERS, -0.1, 1.1],
    "top_k": NOT_INTS,
    "frequency_penalty": [*NOT_NUMBERS, -2.1, 2.1],
    "presence_penalty": [*NOT_NUMBERS, -2.1, 2.1],
    "repetition_penalty": [*NOT_NUMBERS, 0, -1],
    "repetition_window": [*NOT_INTS, -1],
    "dry_multiplier": [*NOT_NUMBERS, -1],
    "dry_base": [*NOT_NUMBERS, 0.5],
    "dry_allowed_length": [*NOT_INTS, -1],
    "dry_sequence_breakers": ["\n", [""], [1], ["x"] * 65],
    "xtc_probability": [*NOT_NUMBERS, 1.1],
    "xtc_threshold": [*NOT_NUMBERS, -1],
    "logit_bias": [
        "x", [[1]], {"abc": 1}, {"-1": 1}, {"1.5": 1}, {"1": "1"}, {"1": 101}, {"1": -101}, {"1": math.nan},
        {"1": None}, {"1": 1, "01": 1}, {"": 1}, {"٣": 1}, {str(i): 1 for i in range(1025)}, {"9" * 5000: 1},
    ],
    "stop": [1, [1], ["x"] * 17, "x" * 1025, ["a", "x" * 1025], {}, ["x"] * 100_000],
    "stop_token_ids": [1, ["1"], [-1], [1.5], [True], [1] * 1025],
    "min_tokens": [*NOT_INTS, -1],
    "ignore_eos": [1, "true"],
    "stream": ["yes", 1],
    "stream_options": [True, {"include_usage": "yes"}, {"unknown": 1}, {"include_usage": True}],
    "user": [1, "x" * 10_000_000],
    "safety_identifier": ["x" * 513],
    "metadata": [[], {"a": 1}, {"a" * 65: "x"}, {"a": "x" * 513}, {str(i): "x" for i in range(10_000)}],
    "client_metadata": [{"a": {}}],
    "service_tier": ["gold", 1],
    "prompt_cache_key": [5],
    "prompt_cache_retention": ["forever"],
    "prompt_cache_options": [{"mode": "x"}, {"x": 1}],
    "verbosity": ["loud"],
    "best_of": [0, 21, 10**6, "1", True, 1.0],
    "response_format": ["text", [], {}, {"type": "xml"}, {"type": "text", "x": 1}, {"type": ["text"]}, 5],
    "unknown_field": [1, "x", {}],
    "chat_template": ["{{ x }}"],
    "cache_salt": ["x"],
}  # fmt: skip


def refusal(schema: type[RequestSchema], data: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        validate(schema, data)
    return caught.value
