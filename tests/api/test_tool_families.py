"""Calls in the words of every model family, over a fake model with the family's template and markers."""

from typing import Any

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.formats import FORMATS, Format, by_name
from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import HELLO, running
from tests.api.test_tools import PING, SHELL, TIME, ask, calls_of, check_calls, folded, named
from tests.unit.formats.derived.corpus import CORPUS
from tests.unit.formats.derived.test_leads import LED, Led


@pytest.mark.parametrize("family", FORMATS, ids=lambda family: family.name)
def test_every_family_calls(family: Format) -> None:
    """The same three tools, each written and read in the family's own way."""
    runner = FakeRunner(chat_template=family.template, defined_tokens=sorted(family.tokens))
    with running(runner) as live, live.openai() as client, live.http() as http:
        for tool in (TIME, PING, SHELL):
            fields: dict[str, Any] = {"tools": [tool], "tool_choice": named(tool)}
            if family.thinking or family.channels:
                fields["reasoning_budget_tokens"] = 10
            answer = ask(client, extra=fields)
            calls = calls_of(answer.choices[0].message)
            check_calls(calls, {tool[tool["type"]]["name"]})
            assert len(calls) == 1 and answer.choices[0].message.content is None
            assert folded(http, **fields) == [{"calls": calls, "content": "", "finish_reason": "stop"}]


SPOKEN = ["the name in the id", "strings between marks", "elements with types and numbers", "elements within elements"]


@pytest.mark.parametrize("name", SPOKEN)
def test_a_syntax_that_no_family_has_is_spoken(name: str) -> None:
    """Derived from the template alone: prompt, grammar and parser."""
    written = next(each for each in CORPUS if each.name == name)
    runner = FakeRunner(chat_template=written.template, defined_tokens=sorted(written.format.tokens))
    with running(runner) as live, live.openai() as client:
        for tool in (TIME, PING, SHELL):
            fields = {"tools": [tool], "tool_choice": named(tool), "reasoning_budget_tokens": 10}
            answer = ask(client, extra=fields)
            calls = calls_of(answer.choices[0].message)
            check_calls(calls, {tool[tool["type"]]["name"]})
            assert len(calls) == 1 and answer.choices[0].message.content is None


@pytest.mark.parametrize("led", LED.values(), ids=LED.keys())
def test_what_leads_to_an_answer_is_no_part_of_it(led: Led) -> None:
    """Over a template where each text is a message of its own: formats, calls, and what a client begins."""
    runner = FakeRunner(chat_template=led.template, defined_tokens=sorted(led.format.tokens))
    with running(runner) as live, live.openai() as client:
        chosen = {"response_format": {"type": "choice", "choices": ["red", "green"]}, "reasoning_budget_tokens": 4}
        quiet = {key: value for key, value in chosen.items() if led.thought or key == "response_format"}
        assert ask(client, extra=quiet).choices[0].message.content in ("red", "green")
        begun = {**quiet, "messages": [*HELLO, {"role": "assistant", "content": "It is "}]}
        begun |= {"continue_final_message": True, "add_generation_prompt": False}
        assert ask(client, extra=begun).choices[0].message.content in ("red", "green")
        fields: dict[str, Any] = {"tools": [TIME], "tool_choice": named(TIME)}
        budget = {"reasoning_budget_tokens": 4} if led.thought else {}
        check_calls(calls_of(ask(client, extra=fields | budget).choices[0].message), {"get_time"})


def test_a_family_that_is_named_is_the_one() -> None:
    runner, config = FakeRunner(chat_template=by_name("chatml").template), Config(drain_seconds=0.2, format="gemma3")
    with running(runner, config) as live, live.http() as http, live.openai() as client:
        messages = [{"role": "system", "content": "Be brief."}, *HELLO]
        prompt = http.post("/apply-template", json={"messages": messages}).json()["prompt"]
        assert prompt.count("<|im_start|>") == 2 and prompt.index("user") < prompt.index("Be brief.")
        calls = calls_of(ask(client, tools=[TIME], tool_choice=named(TIME)).choices[0].message)
    check_calls(calls, {"get_time"})
