"""A family fitted to a model's own chat template, once, when the model is loaded."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from proxy_inference_engine.errors import InvalidRequest, StartupError
from proxy_inference_engine.formats import Format, ToolPlace
from proxy_inference_engine.formats.derived import Specials, fit
from proxy_inference_engine.formats.derived.probe import NAMES, TOOLS
from proxy_inference_engine.prompt.render import special_texts
from proxy_inference_engine.prompt.template import Template
from proxy_inference_engine.prompt.user_text import Chat
from proxy_inference_engine.runners.base import Tokenizer

# What templates ask to find out whether they are to think.
_SWITCHES: Mapping[str, Any] = {"enable_thinking": True, "thinking": True, "reasoning": True}
_QUESTION = {"role": "user", "content": "Hello"}
_MAX_CPU_SECONDS = 3.0  # of all probing; usually it takes milliseconds
# Calls of the past are for the template that writes some, also where nothing is offered any more.
_WITH_TOOLS = "{% if tools or messages | selectattr('tool_calls') | list %}{% set tools = tools or [] %}"
_RULE = {"role": "system", "content": "Be brief."}


class TemplateProbe:
    """Implements `formats.derived.Render`."""

    def __init__(self, template: Template, special_texts: Mapping[str, str], clock: Callable[[], datetime]) -> None:
        self._template = template
        self._given = {**special_texts, "documents": None}
        self._switches = {name: value for name, value in _SWITCHES.items() if name in template.variables}
        self._now = clock()
        self._cpu_seconds = 0.0
        self._has_parts = self.has_absent_tools = False
        self.tool_place = self._find_tool_place()
        if self._failure() is not None:
            self.has_absent_tools = True  # some templates count tools that are not there
            self.has_absent_tools = self._failure() is None
        if not self._prints_questions():
            self._has_parts = True  # some templates with images read parts only
            self._has_parts = self._prints_questions()

    def __call__(
        self,
        messages: Sequence[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        *,
        adds_prompt: bool = False,
        thinks: bool = False,
    ) -> str | None:
        if self._cpu_seconds > _MAX_CPU_SECONDS:
            return None
        started = time.thread_time()
        try:
            return self.render(messages, tools, adds_prompt=adds_prompt, thinks=thinks)
        except InvalidRequest:
            return None
        finally:
            self._cpu_seconds += time.thread_time() - started

    def render(
        self,
        messages: Sequence[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        *,
        adds_prompt: bool = False,
        thinks: bool = False,
    ) -> str:
        messages = [_in_parts(message) for message in messages] if self._has_parts else list(messages)
        chat = Chat(messages, tools).variables(self.tool_place, self._now, is_absent=self.has_absent_tools)
        given = {**self._given, **chat, "add_generation_prompt": adds_prompt}
        return self._template.render({**given, **(self._switches if thinks else {})}, self._now)

    def check(self) -> None:
        """Raises StartupError where the template cannot even put a question."""
        error = self._failure()
        if error is not None and self([_RULE, _QUESTION], adds_prompt=True) is None:
            raise StartupError(_complaint(error))

    def _failure(self) -> InvalidRequest | None:
        """Why the template cannot put a question; None if it can."""
        try:
            self.render([_QUESTION], adds_prompt=True)
        except InvalidRequest as error:
            return error
        return None

    def _find_tool_place(self) -> ToolPlace:
        variables = self._template.variables
        if "functions" in variables and "tools" not in variables:
            return ToolPlace.FUNCTIONS
        self.tool_place = ToolPlace.SYSTEM
        is_there = "tools" not in variables and NAMES[0] in (self([_RULE, _QUESTION], TOOLS) or "")
        return ToolPlace.SYSTEM if is_there else ToolPlace.TOOLS

    def _prints_questions(self) -> bool:
        return _QUESTION["content"] in (self([_QUESTION]) or "")


def _in_parts(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    return {**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message


class FittedTemplate(NamedTuple):
    """A chat template and the family as that wants it."""

    template: Template
    format: Format


def fit_template(
    format: Format,
    source: str | None,
    tokenizer: Tokenizer,
    *,
    keeps_calls: bool = False,
    clock: Callable[[], datetime] = datetime.now,
) -> FittedTemplate:
    """`source` None: the family's own template, which it fits. Raises StartupError where it cannot be used.

    With `keeps_calls` the family's syntax stays, whatever the template writes: somebody asked for that family.
    """
    if source is None:
        return FittedTemplate(Template(format.template), format)
    try:
        template = Template(source)
    except InvalidRequest as error:
        raise StartupError(_complaint(error)) from None
    probe = TemplateProbe(template, special_texts(tokenizer), clock)
    probe.check()
    ends = [text for text, token_id in tokenizer.specials.items() if token_id in tokenizer.end_ids]
    format = replace(format, has_absent_tools=probe.has_absent_tools, tool_place=probe.tool_place)
    vocabulary = Specials(tokenizer.specials.keys(), ends)
    return FittedTemplate(template, fit(format, probe, source, vocabulary, keeps_calls=keeps_calls))


def with_tool_template(
    source: str | None, tool_source: str | None, tokenizer: Tokenizer, clock: Callable[[], datetime] = datetime.now
) -> str | None:
    """A model's template and the one it has for conversations with tools, as one. A second one that fails is left out:
    the first may well be all that anybody needs."""
    if not tool_source or not _lists_tools(tool_source, tokenizer, clock):
        return source or None
    if not source:
        return tool_source
    # As Jinja does with a file's own, the line feed at the end of each goes.
    first, second = (each.removesuffix("\n") for each in (tool_source, source))
    return f"{_WITH_TOOLS}{first}{{% else %}}{second}{{% endif %}}"


def _lists_tools(source: str, tokenizer: Tokenizer, clock: Callable[[], datetime]) -> bool:
    try:
        probe = TemplateProbe(Template(source), special_texts(tokenizer), clock)
    except InvalidRequest:
        return False
    return any(NAMES[0] in (probe(messages, TOOLS) or "") for messages in ([_QUESTION], [_RULE, _QUESTION]))


def _complaint(error: InvalidRequest) -> str:
    reason = error.message.removeprefix("the chat template cannot be read: ").splitlines()[0].rstrip(".")
    return f"the chat template fails: {reason}. Set chat_template to a file, or to the name of a family."
