"""Chat completions that are bound: formats, tools in every way to choose them, and the models of several families."""

from collections.abc import Iterator
from dataclasses import replace

from tests.golden.case import MODEL, Case, Json, assistant, each, user
from tests.golden.servers import FAMILIES
from tests.golden.tools import (
    CONTRADICTORY,
    LARK,
    LOOSE,
    MATH,
    NOTE,
    PING,
    SCHEMA,
    SHELL,
    TIME,
    TOOLS,
    UNSAID,
    WEATHER,
    allowed,
    called,
    custom,
    function,
    json_schema,
    named,
)

PATH = "/v1/chat/completions"
CLOSING = {"34": 8}  # the fake model writes strings for ever: it has to be talked into closing them
ASK: Json = {"model": MODEL, "messages": [user("Hello")], "seed": 1, "max_tokens": 120, "logit_bias": CLOSING}
BASE = Case("", PATH, ASK)


FORMATS: dict[str, Json] = {
    "text": {"response_format": {"type": "text"}, "max_tokens": 4},
    "json_object": {"response_format": {"type": "json_object"}, "max_tokens": 30},
    "json_schema": {"response_format": json_schema(SCHEMA)},
    "json_schema that is described": {"response_format": json_schema(SCHEMA, description="A place.", strict=True)},
    "json_schema that is not strict": {"response_format": json_schema(LOOSE, strict=False)},
    "json_schema that does not say whether others may come": {"response_format": json_schema(UNSAID)},
    "json_schema, opened": {"response_format": json_schema(UNSAID), "open_objects": True, "max_tokens": 60},
    "json_schema cut off": {"response_format": json_schema(SCHEMA), "max_tokens": 5},
    "regex": {"response_format": {"type": "grammar", "syntax": "regex", "definition": "[a-c]{3}-[0-9]{2}"}},
    "lark": {"response_format": {"type": "grammar", "syntax": "lark", "definition": LARK}},
    "choice": {"response_format": {"type": "choice", "choices": ["yes", "no", "peut-être"]}, "n": 2},
    "choice and logprobs": {
        "response_format": {"type": "choice", "choices": ["yes", "no"]},
        "logprobs": True,
        "top_logprobs": 2,
    },
}
CHOICES: dict[str, Json] = {
    "auto": {"tools": TOOLS, "tool_choice": "auto", "max_tokens": 4},
    "not said": {"tools": TOOLS, "max_tokens": 4},
    "none": {"tools": TOOLS, "tool_choice": "none", "max_tokens": 4},
    "required": {"tools": [WEATHER, PING], "tool_choice": "required"},
    "required, only one": {"tools": [WEATHER, TIME], "tool_choice": "required", "parallel_tool_calls": False},
    "a function by name": {"tools": TOOLS, "tool_choice": named(WEATHER)},
    "a strict function by name": {"tools": TOOLS, "tool_choice": named(TIME)},
    "a function without parameters": {"tools": TOOLS, "tool_choice": named(PING)},
    "a regex by name": {"tools": TOOLS, "tool_choice": named(SHELL)},
    "a lark by name": {"tools": TOOLS, "tool_choice": named(MATH)},
    "free text by name": {"tools": TOOLS, "tool_choice": named(NOTE), "max_tokens": 60},
    "allowed, required": {"tools": TOOLS, "tool_choice": allowed("required", TIME, SHELL), "seed": 3},
    "allowed, auto": {"tools": TOOLS, "tool_choice": allowed("auto", TIME), "max_tokens": 4},
    "cut off": {"tools": TOOLS, "tool_choice": named(WEATHER), "max_tokens": 30},
    "two answers": {"tools": [WEATHER, PING], "tool_choice": "required", "parallel_tool_calls": False, "n": 2},
    "logprobs": {"tools": [PING], "tool_choice": named(PING), "logprobs": True, "top_logprobs": 1},
    "relaxed": {"tools": [function("loose", LOOSE)], "tool_choice": "required", "parallel_tool_calls": False},
    "not said whether others may come": {"tools": [function("f", UNSAID)], "tool_choice": "required"},
    "opened": {"tools": [function("f", UNSAID)], "tool_choice": "required", "open_objects": True, "max_tokens": 60},
    "contradictory": {"tools": [function("f", CONTRADICTORY), PING], "tool_choice": named(function("f"))},
    "the same call again": {"tools": [PING], "tool_choice": "required", "logit_bias": {"10": 100}},
    "format or call": {
        "tools": [PING],
        "response_format": {"type": "choice", "choices": ["yes", "no"]},
        "parallel_tool_calls": False,
    },
    "usage": {"tools": [PING], "tool_choice": named(PING), "stream_options": {"include_usage": True}},
}
# How many answers there were says what the scripted model says next.
TURNS = ("text", "thoughts", "a call", "text and two calls", "odd characters", "nobody's call", "half a call")
LATER = ("a custom call", "thoughts cut off", "nothing")
TOOL_HISTORY = [
    user("Hi"),
    assistant("I look.", tool_calls=called(("c1", "get_weather", '{"city": "Paris", "days": 1}'))),
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
]


def turns(number: int) -> list[Json]:
    return [turn for index in range(number) for turn in (user(f"Q{index}"), assistant(f"A{index}"))] + [user("Next")]


def _scripted() -> Iterator[Case]:
    base = replace(BASE, name="scripted", server="scripted")
    ask: Json = {"temperature": 0, "logit_bias": None, "max_tokens": 100}
    yield from each(
        base,
        {name: {**ask, "messages": turns(number)} for number, name in enumerate([*TURNS, *LATER])},
        is_streamed=True,
    )
    ask["tools"] = [WEATHER, PING, custom("shell")]
    yield from each(
        replace(base, name="scripted with tools"),
        {name: {**ask, "messages": turns(number)} for number, name in enumerate([*TURNS, *LATER])},
        is_streamed=True,
    )


def cases() -> Iterator[Case]:
    yield from each(replace(BASE, name="format"), FORMATS, is_streamed=True)
    for case in each(replace(BASE, name="tools"), CHOICES, is_streamed=True):
        options = {} if case.body.get("stream") else {"stream_options": ...}
        yield replace(case, body={name: value for name, value in {**case.body, **options}.items() if value is not ...})
    yield from _scripted()
    for family in FAMILIES:
        table: dict[str, Json] = {
            "a call": {"tools": [WEATHER, SHELL], "tool_choice": named(WEATHER), "reasoning_budget_tokens": 3},
            "a custom call": {"tools": [WEATHER, SHELL], "tool_choice": named(SHELL), "reasoning_budget_tokens": 3},
            "a history of tools": {"messages": TOOL_HISTORY, "tools": [WEATHER, PING], "max_tokens": 4},
        }
        if family in ("gemma3", "llama3", "mistral", "qwen3_coder"):
            table = {name: {**fields, "reasoning_budget_tokens": ...} for name, fields in table.items()}
        yield from each(replace(BASE, name=family, server=family), table, is_streamed=True)
