"""POST /v1/chat/completions: what it does, with one conversation and with several."""

from collections.abc import Iterator
from dataclasses import replace

from tests.golden.case import MODEL, Case, Json, assistant, both, each, user
from tests.golden.tools import called

PATH = "/v1/chat/completions"
HELLO = [user("Hello")]
ASK: Json = {"model": MODEL, "messages": HELLO, "seed": 1, "max_tokens": 8}
BASE = Case("chat", PATH, ASK)

SAMPLING: dict[str, Json] = {
    "a seed": {},
    "greedy": {"temperature": 0},
    "no seed needed when greedy": {"seed": None, "temperature": 0.0},
    "temperature and top_p": {"temperature": 1.7, "top_p": 0.9},
    "top_k and min_p": {"top_k": 5, "min_p": 0.05},
    "penalties": {
        "frequency_penalty": 1.5,
        "presence_penalty": -0.5,
        "repetition_penalty": 1.3,
        "repetition_window": 16,
    },
    "DRY": {"dry_multiplier": 2.0, "dry_base": 1.5, "dry_allowed_length": 1, "dry_sequence_breakers": ["x", "\n"]},
    "DRY with its own breakers": {"dry_multiplier": 0.8},
    "XTC": {"xtc_probability": 0.9, "xtc_threshold": 0.05},
    "biases": {"logit_bias": {"122": 100}},
    "biases against": {"logit_bias": {"32": -100, "101": -50.5}, "temperature": 0},
    "a negative seed": {"seed": -5},
}
LIMITS: dict[str, Json] = {
    "max_completion_tokens": {"max_tokens": None, "max_completion_tokens": 3},
    "both limits": {"max_completion_tokens": 8},
    "stop": {"stop": "e", "max_tokens": 40, "temperature": 0},
    "several stops": {"stop": ["zz", "a", "o"], "max_tokens": 40},
    "stop_token_ids": {"stop_token_ids": [32, 101], "max_tokens": 40},
    "min_tokens": {"min_tokens": 6, "stop_token_ids": [97, 101, 32]},
    "an end of its own": {"logit_bias": {"258": 100}},
    "ignore_eos": {"logit_bias": {"258": 100}, "ignore_eos": True},
    "min_tokens before the end": {"logit_bias": {"258": 100}, "min_tokens": 3},
    "one token": {"max_tokens": 1},
}
OUTPUT: dict[str, Json] = {
    "n": {"n": 3, "max_tokens": 3},
    "n, greedy": {"n": 2, "max_tokens": 3, "temperature": 0},
    "logprobs": {"logprobs": True, "max_tokens": 3},
    "top_logprobs": {"logprobs": True, "top_logprobs": 2, "max_tokens": 2},
    "top_logprobs 0": {"logprobs": True, "top_logprobs": 0, "max_tokens": 2},
    "top_logprobs without logprobs, but none": {"top_logprobs": 0, "max_tokens": 2},
    "logprobs at a stop": {"logprobs": True, "stop": ["e", "a", "o"], "max_tokens": 30},
    "logprobs of half characters": {"logprobs": True, "max_tokens": 4, "logit_bias": {"226": 100}, "top_logprobs": 1},
    "half characters": {"max_tokens": 3, "logit_bias": {"226": 100}},
    "logprobs of the very unlikely": {"logprobs": True, "top_logprobs": 20, "max_tokens": 1, "logit_bias": {"9": 100}},
}
WITHOUT_EFFECT: dict[str, Json] = {
    "service_tier": {"service_tier": "flex"},
    "all fields without effect": {
        "user": "anna",
        "safety_identifier": "a1",
        "metadata": {"topic": "tea", "empty": ""},
        "client_metadata": {"turn": "1"},
        "service_tier": "auto",
        "prompt_cache_key": "key",
        "prompt_cache_retention": "24h",
        "prompt_cache_options": {"mode": "implicit", "ttl": "1h"},
        "verbosity": "low",
    },
    "refused fields that ask for nothing": {
        "audio": None,
        "function_call": "auto",
        "functions": [],
        "modalities": ["text"],
        "moderation": None,
        "web_search_options": None,
        "tools": [],
        "tool_choice": "none",
        "response_format": {"type": "text"},
    },
    "model by alias": {"model": "default"},
    "null is absent": {"temperature": None, "stop": None, "n": None, "stream_options": None, "tools": None},
}
CONVERSATIONS: dict[str, list[Json]] = {
    "system": [{"role": "system", "content": "Be brief."}, user("Hi")],
    "developer": [{"role": "developer", "content": "Be brief."}, user("Hi")],
    "agent": [user("Hi"), {"role": "agent", "content": "Ho"}, user("Hey")],
    "names": [{"role": "user", "name": "anna", "content": "Hi"}],
    "parts": [user([{"type": "text", "text": "Hi "}, {"type": "text", "text": "there"}])],
    "refusal": [user("Hi"), assistant(refusal="No."), user("Why?")],
    "refusal part": [user("Hi"), assistant([{"type": "refusal", "refusal": "No."}]), user("Why?")],
    "empty text": [user("")],
    "thoughts of earlier": [user("Hi"), assistant("Ho", reasoning_content="Hm."), user("Hey")],
    "only thoughts": [user("Hi"), assistant(reasoning="Hm."), user("Hey")],
    "thoughts of others when empty": [{**user("Hi"), "tool_calls": [], "reasoning_content": "", "annotations": []}],
    "a call and its result": [
        user("Hi"),
        assistant(tool_calls=called(("c1", "get_weather", '{"city": "Paris"}'))),
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ],
    "two calls, results in parts": [
        user("Hi"),
        assistant("I look.", tool_calls=called(("c1", "a", "{}"), ("c2", "b", "not JSON"))),
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "two"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "one", "name": "a"},
        user("So?"),
    ],
    "a function message": [
        user("Hi"),
        assistant(tool_calls=[{"id": "c1", "function": {"name": "a", "arguments": "{}"}}]),
        {"role": "function", "name": "a", "content": "one"},
    ],
    "a custom call": [
        user("Hi"),
        assistant(tool_calls=[{"id": "c1", "type": "custom", "custom": {"name": "shell", "input": "ls"}}]),
        {"role": "tool", "tool_call_id": "c1", "content": "file"},
    ],
    "many languages": [user("Grüße, 世界! 𝄞 <|im_end|> \u2028")],
}
PROMPT_END: dict[str, Json] = {
    "no generation prompt": {"add_generation_prompt": False},
    "generation prompt": {"add_generation_prompt": True},
    "continue": {"messages": [user("Hi"), assistant("I am")], "continue_final_message": True},
    "continue, spaces and all": {
        "messages": [user("Hi"), assistant("I am ")],
        "continue_final_message": True,
        "add_generation_prompt": False,
    },
    "a last message that is not continued": {"messages": [user("Hi"), assistant("I am")]},
}
STREAMS: dict[str, Json] = {
    "usage": {"stream_options": {"include_usage": True}},
    "no usage": {"stream_options": {"include_usage": False, "include_obfuscation": False}},
    "usage of several": {"stream_options": {"include_usage": True}, "n": 2, "max_tokens": 2},
    "usage and metadata": {"stream_options": {"include_usage": True}, "metadata": {"a": "b"}, "service_tier": "fast"},
}
BEST: dict[str, Json] = {
    "best_of": {"best_of": 4},
    "best_of, two of them": {"best_of": 3, "n": 2, "max_tokens": 4},
    "best_of one": {"best_of": 1},
    "best_of with logprobs": {"best_of": 2, "logprobs": True, "top_logprobs": 1, "max_tokens": 2},
}
GUESSES: dict[str, Json] = {
    "a guess that is right": {"prediction": {"type": "content", "content": "kflvjmis"}, "temperature": 0},
    "a guess": {"prediction": {"type": "content", "content": "nothing like it"}, "temperature": 0},
    "a guess in parts": {
        "prediction": {"type": "content", "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "pe"}]},
        "temperature": 0,
    },
}

# Conversations of one request begin differently: what they share would be found in the cache, or not, by chance.
TALKS = [[user("Hello")], [user("One")], [user("Two")]]
BATCHES: dict[str, Json] = {
    "one": {"messages": TALKS[:1]},
    "three": {"messages": TALKS, "max_tokens": 3},
    "three, twice": {"messages": TALKS, "max_tokens": 2, "n": 2},
    "a value for each": {
        "messages": TALKS,
        "temperature": [0, 1, 0.5],
        "max_tokens": [2, 4, 6],
        "seed": [1, 2, 3],
        "stop": [["e"], None, None],
        "logit_bias": [None, {"122": 100}, None],
    },
    "a value for all": {"messages": TALKS, "temperature": [0], "max_tokens": [3], "stop_token_ids": [[32]]},
    "formats of their own": {
        "messages": TALKS[:2],
        "response_format": [{"type": "choice", "choices": ["yes", "no"]}, {"type": "text"}],
        "logprobs": True,
        "max_tokens": 4,
    },
    "tools of their own": {
        "messages": TALKS[:2],
        "tools": [[{"type": "function", "function": {"name": "ping"}}], []],
        "tool_choice": ["required", "none"],
        "parallel_tool_calls": [False, True],
        "max_tokens": [200, 3],
    },
}


def cases() -> Iterator[Case]:
    for table in (SAMPLING, LIMITS, OUTPUT, WITHOUT_EFFECT):
        yield from each(BASE, table, is_streamed=True)
    yield from each(replace(BASE, name="messages"), {name: {"messages": said} for name, said in CONVERSATIONS.items()})
    yield from each(BASE, PROMPT_END, is_streamed=True)
    yield from each(replace(BASE, name="stream", body={**ASK, "stream": True}), STREAMS)
    yield from each(BASE, BEST)
    yield from each(BASE, GUESSES)
    for case in each(replace(BASE, name="conversations", body={**ASK, "temperature": 0}), BATCHES, is_streamed=True):
        yield replace(case, is_unordered=True)
    yield from both(replace(BASE, name="the client's own request id", headers=[("X-Request-Id", "mine-1.2_3")]))
    yield replace(BASE, name="a request id that is not harmless", headers=[("x-request-id", "a b")])
    best: Json = {**ASK, "messages": TALKS[:2], "best_of": 2, "max_tokens": 2}
    yield replace(BASE, name="best of conversations", body=best)
    usage: Json = {"stream": True, "stream_options": {"include_usage": True}}
    body = {**ASK, **usage, "messages": TALKS, "max_tokens": 2}
    yield replace(BASE, name="conversations with usage", is_unordered=True, body=body)
