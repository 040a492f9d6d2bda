"""The root machine as one grammar: reasoning, then text, calls or a structure. What each looks like is the family's."""

from dataclasses import dataclass

from proxy_inference_engine.formats import Format
from proxy_inference_engine.formats.syntax import CallSyntax, Channels, Thinking
from proxy_inference_engine.state_machine.calls import Arguments, CallRules, call_rules
from proxy_inference_engine.state_machine.lark import Lark, pattern
from proxy_inference_engine.state_machine.states import Root


@dataclass(frozen=True, slots=True)
class Bodies:
    """What the client's own grammars became: parts of rules of the same Lark."""

    structured: str | None
    arguments: Arguments


def root_rule(lark: Lark, format: Format, root: Root, bodies: Bodies) -> str:
    """The start rule of a root that binds something."""
    if format.channels is not None:
        return _in_channels(lark, format.channels, root, bodies)
    calls = None
    if root.calls is not None:
        assert format.calls is not None
        calls = call_rules(lark, format.calls, root.calls, bodies.arguments)
    answer = lark.rule(_answer(lark, format.calls, calls, root, bodies))
    if root.reasoning is None or format.thinking is None:
        return answer
    thought = lark.rule(_thought(lark, format, calls, root, answer))
    return thought if root.reasoning.is_open else f"{lark.spell(format.thinking.opening)} {thought} | {answer}"


def _answer(lark: Lark, syntax: CallSyntax | None, calls: CallRules | None, root: Root, bodies: Bodies) -> str:
    if calls is None:
        assert bodies.structured is not None
        return bodies.structured
    if root.structured is not None:
        return f"{bodies.structured} | {calls.whole}"
    if root.text is None:
        return calls.whole
    assert syntax is not None
    if syntax.is_at_start:
        plain = lark.terminal(f"/(?s:.*)/ & ~/{pattern(syntax.opening)}(?s:.*)/")
        return f"{plain} | {calls.whole}"
    return f"{lark.text_without(syntax.opening)} | {lark.until(syntax.opening)} {calls.tail}"


def _thought(lark: Lark, format: Format, calls: CallRules | None, root: Root, answer: str) -> str:
    """From inside the reasoning to the end; with tools active, a call's opening ends the reasoning as well."""
    thinking, syntax = format.thinking, format.calls
    assert thinking is not None
    gap = "" if root.text is not None else f"{_gap(lark, thinking)} "
    closed = f"{lark.until(thinking.closing)} {gap}{answer}"
    if calls is None or syntax is None or syntax.is_at_start:
        return closed
    return f"{closed} | {lark.until(syntax.opening)} {calls.tail}"


def _gap(lark: Lark, thinking: Thinking) -> str:
    return lark.spell(thinking.gap)


def _in_channels(lark: Lark, channels: Channels, root: Root, bodies: Bodies) -> str:
    """[analysis end restart] then a final message, or a call that a message to the user may come before."""
    answers = []
    if root.structured is not None or root.text is not None:
        body = bodies.structured if root.structured is not None else lark.any_text()
        answers.append(f"{_message(lark, channels, channels.answer)} {body}")
    if root.calls is not None:
        head, tail = channels.call, channels.call_suffix
        named = [
            f"{_message(lark, channels, head + tool.name + tail)} {bodies.arguments(tool, index)}"
            for tool, index in zip(root.calls.tools, root.calls.indexes, strict=True)
        ]
        calls = lark.rule(" | ".join(lark.rule(body) for body in named))
        aside = f"({_whole_message(lark, channels, channels.aside)})? " if root.text is not None else ""
        answers.append(f"{aside}{calls}")
    answer = lark.rule(" | ".join(answers))
    if root.reasoning is None:
        return answer
    if root.reasoning.is_open:
        return f"{lark.until(channels.end)} {lark.spell(channels.restart)} {answer}"
    return f"({_whole_message(lark, channels, channels.reasoning)})? {answer}"


def _whole_message(lark: Lark, channels: Channels, name: str) -> str:
    """A message of free text that another one follows."""
    return f"{_message(lark, channels, name)} {lark.until(channels.end)} {lark.spell(channels.restart)}"


def _message(lark: Lark, channels: Channels, name: str) -> str:
    """The head of a message in a channel."""
    return lark.spell(f"{channels.channel}{name}{channels.message}")
