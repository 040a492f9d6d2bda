"""POST /v1/completions: what it does and what it refuses."""

from collections.abc import Iterator
from dataclasses import replace

from tests.golden.case import MODEL, Case, Json, each, refused

PATH = "/v1/completions"
ASK: Json = {"model": MODEL, "prompt": "Once upon", "seed": 1, "max_tokens": 6}
BASE = Case("completion", PATH, ASK)
TABLE: dict[str, Json] = {
    "a seed": {},
    "greedy": {"temperature": 0},
    "the usual limit": {"max_tokens": None, "temperature": 0},
    "no limit but the model's": {"max_tokens": 100_000, "temperature": 0, "stop": [" "]},
    "nothing": {"max_tokens": 0},
    "nothing but the prompt": {"max_tokens": 0, "echo": True},
    "scores": {"max_tokens": 0, "echo": True, "logprobs": 1},
    "echo": {"echo": True},
    "echo and logprobs": {"echo": True, "logprobs": 0, "max_tokens": 2},
    "echo of ids": {"prompt": [72, 105, 256, 195, 188], "echo": True, "logprobs": 0, "max_tokens": 1},
    "logprobs": {"logprobs": 2, "max_tokens": 3},
    "logprobs 0": {"logprobs": 0, "max_tokens": 3},
    "logprobs of half characters": {"logprobs": 1, "logit_bias": {"226": 100}, "max_tokens": 2},
    "n": {"n": 3, "max_tokens": 2},
    "n, echo and logprobs": {"n": 2, "echo": True, "logprobs": 0, "max_tokens": 1},
    "ids": {"prompt": [72, 101, 108], "temperature": 0},
    "stop": {"stop": ["a", "e", "o"], "max_tokens": 30},
    "stop ids": {"stop_token_ids": [32], "max_tokens": 30},
    "min_tokens": {"min_tokens": 5, "stop_token_ids": [32, 97, 101]},
    "an end of its own": {"logit_bias": {"259": 100}},
    "an end that is ignored": {"logit_bias": {"259": 100}, "ignore_eos": True, "max_tokens": 2},
    "sampling": {"top_k": 9, "min_p": 0.01, "top_p": 0.9, "presence_penalty": 1, "repetition_penalty": 1.2},
    "DRY and XTC": {"dry_multiplier": 1, "xtc_probability": 0.5},
    "service tier": {"service_tier": "default", "user": "a", "metadata": {"a": "b"}},
    "no suffix": {"suffix": "", "response_format": {"type": "text"}},
    "control tokens": {"prompt": "<|im_start|>user", "max_tokens": 2, "echo": True},
    "control tokens as text": {"prompt": "<|im_start|>user", "max_tokens": 2, "echo": True, "parse_special": False},
    "many languages": {"prompt": "Grüße, 世界 \u2028", "echo": True, "max_tokens": 2},
}
# They begin differently: what they share would be found in the cache, or not, by chance.
SEVERAL: dict[str, Json] = {
    "texts": {"prompt": ["One", "Two", "Hm"], "max_tokens": 2},
    "lists of ids": {"prompt": [[65, 66], [67]], "max_tokens": 2},
    "texts, twice, echoed": {"prompt": ["One", "Two"], "n": 2, "echo": True, "max_tokens": 1},
    "scores": {"prompt": ["One", "Two"], "max_tokens": 0, "echo": True, "logprobs": 1},
}
BEST: dict[str, Json] = {
    "best_of": {"best_of": 3},
    "best_of several": {"best_of": 3, "n": 2, "prompt": ["One", "Two"], "max_tokens": 2},
    "best_of with logprobs and echo": {"best_of": 2, "logprobs": 1, "echo": True, "max_tokens": 1},
}
REFUSED: list[Json] = [
    {"prompt": ...},
    {"prompt": None},
    {"prompt": ""},
    {"prompt": []},
    {"prompt": {}},
    {"prompt": 5},
    {"prompt": ["a", 1]},
    {"prompt": ["a", [1]]},
    {"prompt": [[1], []]},
    {"prompt": [1, "a"]},
    {"prompt": [1, 2.5]},
    {"prompt": [1, True]},
    {"prompt": [True]},
    {"prompt": [-1]},
    {"prompt": [5000]},
    {"prompt": [[1], [5000]]},
    {"prompt": ["a", ""]},
    {"prompt": ["a"] * 129},
    {"prompt": "a" * 9000},
    {"prompt": ["a", "ab" * 600_000]},
    {"prompt": [97] * 8192},
    {"messages": []},
    {"model": ...},
    {"model": "gpt-4"},
    {"max_tokens": -1},
    {"max_tokens": "5"},
    {"max_tokens": 0, "min_tokens": 1},
    {"echo": 1},
    {"echo": "yes"},
    {"logprobs": 6},
    {"logprobs": True},
    {"logprobs": -1},
    {"suffix": "end"},
    {"suffix": 1},
    {"suffix": "end", "echo": True},
    {"response_format": {"type": "json_object"}},
    {"best_of": 1, "n": 2},
    {"best_of": 21},
    {"best_of": 2, "stream": True},
    {"stream_options": {"include_usage": True}},
    {"tools": []},
    {"temperature": 3},
    {"logit_bias": {"9999": 1}},
    {"stop_token_ids": [9999]},
    {"stop": [""]},
    {"max_completion_tokens": 5},
    {"top_logprobs": 1},
    {"store": True},
]
FILLING: dict[str, Json] = {
    "a gap": {"prompt": "def f(", "suffix": "): pass"},
    "two gaps": {"prompt": ["one", "two"], "suffix": "end", "max_tokens": 2},
    "a gap with logprobs": {"prompt": "def f(", "suffix": "): pass", "logprobs": 0, "max_tokens": 2},
    "a gap in ids": {"prompt": [100, 101], "suffix": "end", "max_tokens": 2},
}


def cases() -> Iterator[Case]:
    yield from each(BASE, TABLE, is_streamed=True)
    for case in each(replace(BASE, name="prompts", body={**ASK, "temperature": 0}), SEVERAL, is_streamed=True):
        yield replace(case, is_unordered=True)
    yield from each(BASE, BEST)
    usage: Json = {"stream": True, "stream_options": {"include_usage": True}}
    yield from each(replace(BASE, body={**ASK, **usage}), {"usage": {}, "usage of several": {"n": 2, "max_tokens": 1}})
    yield from refused(BASE, REFUSED)
    filling = replace(BASE, server="filling", name="filling")
    for case in each(filling, FILLING, is_streamed=True):
        yield replace(case, is_unordered=isinstance(case.body["prompt"][0], str))
    yield from refused(filling, [{"suffix": "end", "echo": True}])
    yield from each(
        replace(BASE, server="opened by bos", name="with BOS"),
        {
            "echo": {"echo": True, "logprobs": 0, "max_tokens": 1},
            "ids": {"prompt": [72], "max_tokens": 1, "echo": True},
        },
    )
