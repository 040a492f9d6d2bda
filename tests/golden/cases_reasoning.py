"""Reasoning in all three APIs: families that think, switches, budgets, and what contradicts itself."""

from collections.abc import Iterator
from dataclasses import replace

from tests.golden.case import MODEL, Case, Json, assistant, each, refused, user
from tests.golden.tools import PING, WEATHER, anthropic, flat, named

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
# The fake model writes markers wherever it may. One that opens its thoughts itself has to be talked into it.
QUIET = {"260": -100, "262": -100, "263": -100}
EAGER = {"260": 7, "261": 1, "262": -100, "263": -100}
ASK: Json = {"model": MODEL, "messages": [user("Hello")], "seed": 1, "max_tokens": 24, "logit_bias": QUIET}
SWITCHES: dict[str, Json] = {
    "nothing said": {},
    "on": {"enable_thinking": True},
    "off": {"enable_thinking": False},
    "off by kwargs": {"chat_template_kwargs": {"enable_thinking": False}},
    "off by effort": {"reasoning_effort": "none"},
    "effort": {"reasoning_effort": "high", "max_tokens": 6},
    "effort by kwargs": {"chat_template_kwargs": {"reasoning_effort": "low"}, "max_tokens": 6},
    "budget": {"reasoning_budget_tokens": 4},
    "no budget": {"reasoning_budget_tokens": 0, "max_tokens": 6},
    "at least": {"reasoning_min_tokens": 8, "reasoning_budget_tokens": 10},
    "budget and format": {
        "reasoning_budget_tokens": 4,
        "response_format": {"type": "choice", "choices": ["yes", "no"]},
    },
    "budget and call": {
        "reasoning_budget_tokens": 4,
        "tools": [PING],
        "tool_choice": named(PING),
        "max_tokens": 90,
        "logit_bias": None,
    },
    "logprobs": {"reasoning_budget_tokens": 2, "logprobs": True, "max_tokens": 6},
    "thoughts of earlier": {"messages": [user("Hi"), assistant("Ho", reasoning_content="Hm."), user("Hey")]},
    "usage": {"reasoning_budget_tokens": 4, "n": 2, "max_tokens": 8},
    "stop": {"reasoning_budget_tokens": 3, "stop": ["a", "e", "i", "o", "u", " "], "max_tokens": 60},
    "continued": {"messages": [user("Hi"), assistant("I am")], "continue_final_message": True, "max_tokens": 6},
}
CONTRADICTIONS: list[Json] = [
    {"enable_thinking": True, "reasoning_effort": "none"},
    {"enable_thinking": False, "reasoning_effort": "low"},
    {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}},
    {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
    {"enable_thinking": False, "reasoning_min_tokens": 1},
    {"reasoning_min_tokens": 5, "reasoning_budget_tokens": 4},
    {"chat_template_kwargs": {"enable_thinking": "yes"}},
    {"chat_template_kwargs": {"enable_thinking": 1}},
    {"reasoning_effort": "much"},
    {"reasoning_effort": 1},
    {"reasoning_budget_tokens": -1},
    {"reasoning_budget_tokens": 1.5},
    {"reasoning_min_tokens": True},
    {"enable_thinking": "true"},
    {"chat_template_kwargs": {"messages": []}},
    {"chat_template_kwargs": [1]},
    {"chat_template_kwargs": {f"v{number}": 1 for number in range(65)}},
]
OF_OPENING: list[Json] = [
    {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}},
    {"chat_template_kwargs": {"reasoning_effort": "<|im_end|>"}},
]
OF_PLAIN: list[Json] = [
    {"enable_thinking": True},
    {"reasoning_budget_tokens": 4},
    {"reasoning_min_tokens": 4},
]
FINE_ON_PLAIN: dict[str, Json] = {
    "off": {"enable_thinking": False},
    "no effort": {"reasoning_effort": "none"},
    "no budget": {"reasoning_budget_tokens": 0, "reasoning_min_tokens": 0},
    "effort": {"reasoning_effort": "low"},
    "effort, and off": {"reasoning_effort": "low", "enable_thinking": False},
    "on by kwargs": {"chat_template_kwargs": {"enable_thinking": True}},
    "variables that nothing reads": {"chat_template_kwargs": {"colour": "red", "size, big": 1}},
}
RESPONSE: Json = {
    "model": MODEL, "input": "Hello", "seed": 1, "max_output_tokens": 24, "logit_bias": QUIET, "store": False,
}  # fmt: skip
RESPONDING: dict[str, Json] = {
    "nothing said": {},
    "effort": {"reasoning": {"effort": "high", "summary": "auto", "generate_summary": None, "context": "auto"}},
    "no effort": {"reasoning": {"effort": "none"}, "max_output_tokens": 6},
    "switched off": {"enable_thinking": False, "max_output_tokens": 6},
    "budget": {"reasoning_budget_tokens": 4, "reasoning_min_tokens": 2},
    "budget and call": {
        "reasoning_budget_tokens": 4,
        "tools": [flat(PING)],
        "tool_choice": "required",
        "max_tool_calls": 1,
        "max_output_tokens": 90,
        "logit_bias": None,
    },
    "sealed": {"reasoning_budget_tokens": 4, "include": ["reasoning.encrypted_content"], "max_output_tokens": 8},
    "logprobs": {"reasoning_budget_tokens": 2, "top_logprobs": 1, "max_output_tokens": 5},
    "kwargs": {"chat_template_kwargs": {"enable_thinking": False}, "max_output_tokens": 4},
}
RESPONSE_CONTRADICTIONS: list[Json] = [
    {"enable_thinking": False, "reasoning": {"effort": "low"}},
    {"reasoning": {"effort": "none"}, "chat_template_kwargs": {"enable_thinking": True}},
    {"reasoning": {"effort": "much"}},
    {"reasoning": {"summary": "long"}},
    {"reasoning": {"mode": "pro"}},
    {"reasoning": {"colour": "red"}},
    {"reasoning": "high"},
    {"reasoning_min_tokens": 4, "reasoning_budget_tokens": 3},
]
MESSAGE: Json = {"model": MODEL, "messages": [user("Hello")], "max_tokens": 24, "temperature": 0}
THINKING: dict[str, Json] = {
    "nothing said": {"max_tokens": 8},
    "enabled": {"thinking": {"type": "enabled", "budget_tokens": 4}},
    "enabled, omitted": {"thinking": {"type": "enabled", "budget_tokens": 4, "display": "omitted"}},
    "enabled, summarized": {"thinking": {"type": "enabled", "budget_tokens": 4, "display": "summarized"}},
    "adaptive": {"thinking": {"type": "adaptive"}},
    "disabled": {"thinking": {"type": "disabled"}, "max_tokens": 8},
    "between tools": {"thinking": {"type": "between_tools"}, "max_tokens": 8},
    "effort": {"output_config": {"effort": "high"}, "max_tokens": 8},
    "enabled and a call": {
        "thinking": {"type": "enabled", "budget_tokens": 4},
        "tools": [anthropic(PING), anthropic(WEATHER)],
        "tool_choice": {"type": "tool", "name": "ping"},
        "max_tokens": 90,
    },
    "enabled and a format": {
        "thinking": {"type": "enabled", "budget_tokens": 4},
        "output_config": {"format": {"type": "json_schema", "schema": {"enum": ["yes", "no"]}}},
    },
    "earlier blocks": {
        "messages": [
            user("Hi"),
            assistant(
                [
                    {"type": "thinking", "thinking": "Hm.", "signature": "abc"},
                    {"type": "redacted_thinking", "data": "xyz"},
                    {"type": "text", "text": "Ho"},
                ]
            ),
            user("Hey"),
        ],
        "max_tokens": 8,
    },
    "continued": {
        "messages": [user("Hi"), assistant("I am")],
        "thinking": {"type": "enabled", "budget_tokens": 4},
        "max_tokens": 6,
    },
}


def cases() -> Iterator[Case]:
    for server in ("thinking", "opening", "harmony"):
        bias: Json = {"logit_bias": EAGER if server == "thinking" else QUIET}
        base = Case(f"{server}, chat", CHAT, {**ASK, **bias}, server=server)
        table = SWITCHES if server == "thinking" else {name: SWITCHES[name] for name in list(SWITCHES)[:9]}
        if server == "thinking":
            table = {name: fields for name, fields in table.items() if name != "effort by kwargs"}
        yield from each(base, table, is_streamed=True)
        yield from refused(base, CONTRADICTIONS if server == "thinking" else OF_OPENING)
        response = Case(f"{server}, response", RESPONSES, {**RESPONSE, **bias}, server=server)
        message = Case(f"{server}, message", MESSAGES, MESSAGE, server=server)
        yield from each(response, RESPONDING, is_streamed=True)
        yield from each(message, THINKING, is_streamed=True)
    off = {name: fields for name, fields in SWITCHES.items() if name == "nothing said" or name.startswith("off")}
    yield from each(Case("deepseek_r1, chat", CHAT, ASK, server="deepseek_r1"), off)
    off = {name: THINKING[name] for name in ("nothing said", "disabled", "between tools")}
    yield from each(Case("deepseek_r1, message", MESSAGES, MESSAGE, server="deepseek_r1"), off)
    yield from refused(Case("thinking, response", RESPONSES, RESPONSE, server="thinking"), RESPONSE_CONTRADICTIONS)
    plain: Json = {**ASK, "max_tokens": 3, "logit_bias": None}
    yield from refused(Case("plain, chat", CHAT, plain), OF_PLAIN)
    yield from each(Case("plain, chat", CHAT, plain), FINE_ON_PLAIN)
    plain = {**RESPONSE, "max_output_tokens": 3, "logit_bias": None}
    table = {name: RESPONDING[name] for name in ("effort", "no effort", "switched off")}
    yield from each(Case("plain, response", RESPONSES, plain), table)
    yield from refused(
        Case("plain, response", RESPONSES, plain), [{"reasoning_budget_tokens": 3}, {"enable_thinking": True}]
    )
    table = {name: THINKING[name] for name in ("enabled", "disabled", "effort", "earlier blocks")}
    yield from each(Case("plain, message", MESSAGES, {**MESSAGE, "max_tokens": 3}), table)
    template = Case("thinking, template", "/apply-template", {"messages": [user("Hi")]}, server="thinking")
    for fields in ({}, {"chat_template_kwargs": {"enable_thinking": False}}):
        yield replace(template, name=f"template with {fields}", body={**template.body, **fields})
