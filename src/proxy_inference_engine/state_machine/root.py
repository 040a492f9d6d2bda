"""The root machine of an answer: the states it goes through, the rules that put them together, and its one grammar.

Reasoning?  then one of
    FreeformText            StructuredOutput            ToolCalls
    FreeformText, or text followed by calls             ToolCalls or StructuredOutput

What each of them looks like is the family's.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, NamedTuple

from proxy_inference_engine.formats import Format
from proxy_inference_engine.formats.syntax import CallSyntax, Channels, Thinking
from proxy_inference_engine.interaction import TextGrammar, Tool
from proxy_inference_engine.state_machine.demand import (
    AnyText,
    Demand,
    InvalidDemand,
    JsonObject,
    JsonSchema,
    ListedText,
    TextWithout,
)
from proxy_inference_engine.state_machine.vocabulary import Lark, pattern

# A tool and its index in the client's list → its arguments as part of a rule, with the text that comes after them.
Arguments = Callable[[Tool, int], str]
_MANY_CALLS = 1 << 20  # no context has room for so many


@dataclass(frozen=True, slots=True)
class FreeformText:
    """Anything that does not open a call."""


@dataclass(frozen=True, slots=True)
class ReasoningBlock:
    """Free thought before the answer. Open: the prompt began it; otherwise the model may."""

    is_open: bool


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """One call, and more up to `max_calls` (None: any number). `indexes` are the tools' places in the client's list."""

    tools: tuple[Tool, ...]
    indexes: tuple[int, ...]
    max_calls: int | None


@dataclass(frozen=True, slots=True)
class StructuredOutput:
    """Text that a grammar of the client's binds."""

    format: TextWithout | JsonObject | JsonSchema | TextGrammar | ListedText


@dataclass(frozen=True, slots=True)
class Root:
    """The machine of one request: reasoning first, then what the answer may be, never both text and a structure."""

    reasoning: ReasoningBlock | None = None
    text: FreeformText | None = None
    structured: StructuredOutput | None = None
    calls: ToolCalls | None = None
    closes_objects: bool = False
    any_order: bool = False
    is_begun: bool = False  # the answer's text goes on: nothing leads to it
    is_raw: bool = False  # without the family's syntax around it

    @property
    def is_free(self) -> bool:
        """Whether nothing binds the answer."""
        return self.structured is None and self.calls is None


def build_root(demand: Demand, *, can_reason: bool, can_repeat: bool) -> Root:
    """`can_reason` and `can_repeat` are the family's. Raises InvalidDemand.

    demand                          answer
    a format alone                  the structured output
    tools, auto                     text, or calls, or text and then calls
    tools, auto, and a format       calls, or the structured output
    tools, required or named        calls
    tools, none                     the format, or text
    """
    if demand.is_raw and not isinstance(demand.output, AnyText):
        root = Root(closes_objects=demand.closes_objects, any_order=demand.any_order, is_raw=True)
        return replace(root, structured=StructuredOutput(demand.output))
    # A block that the prompt has opened is there, whoever switched reasoning off.
    is_there = can_reason and (demand.can_reason or demand.is_reasoning_open)
    reasoning = ReasoningBlock(demand.is_reasoning_open) if is_there else None
    calls = _calls(demand, can_repeat)
    root = Root(reasoning, calls=calls, closes_objects=demand.closes_objects, is_begun=demand.is_begun)
    root = replace(root, any_order=demand.any_order)
    if calls is not None and demand.tool_choice.mode == "required":
        return root
    if isinstance(demand.output, AnyText):
        return replace(root, text=FreeformText())
    return replace(root, structured=StructuredOutput(demand.output))


def _calls(demand: Demand, can_repeat: bool) -> ToolCalls | None:
    """Which tools may be called, and how often; None: none."""
    choice = demand.tool_choice
    if not demand.tools:
        if choice.mode == "required" or choice.names is not None:
            raise InvalidDemand("a tool is to be called, but there are no tools", "tool_choice")
        return None
    unknown = sorted((choice.names or frozenset()) - {tool.name for tool in demand.tools})
    if unknown:
        raise InvalidDemand(f"there is no tool named {unknown[0][:64]!r}", "tool_choice")
    if choice.mode == "none":
        return None
    allowed = [
        (index, tool) for index, tool in enumerate(demand.tools) if choice.names is None or tool.name in choice.names
    ]
    if not allowed:
        raise InvalidDemand("no tool may be called", "tool_choice")
    tools = tuple(tool for _, tool in allowed)
    max_calls = demand.max_calls if demand.is_parallel and can_repeat else 1
    return ToolCalls(tools, tuple(index for index, _ in allowed), max_calls)


@dataclass(frozen=True, slots=True)
class RootBodies:
    """What the client's own grammars became: parts of rules of the same Lark."""

    structured: str | None
    arguments: Arguments


# What writes the start rule of a grammar.
RootRule = Callable[[Lark, Format, Root, RootBodies], str]


class CallRules(NamedTuple):
    """`whole` is the opening and all the rest, `tail` what follows the opening."""

    whole: str
    tail: str


def root_rule(lark: Lark, format: Format, root: Root, bodies: RootBodies) -> str:
    """The start rule of a root that binds something."""
    if root.is_raw:
        assert bodies.structured is not None
        return bodies.structured
    if format.channels is not None:
        return _in_channels(lark, format.channels, root, bodies)
    calls = None
    if root.calls is not None:
        assert format.calls is not None
        calls = _call_rules(lark, format.calls, root.calls, bodies.arguments)
    answer = lark.rule(_answer(lark, format, calls, root, bodies))
    if root.reasoning is None or format.thinking is None:
        return answer
    thought = lark.rule(_thought(lark, format, calls, root, answer))
    return thought if root.reasoning.is_open else f"{lark.spell(format.thinking.opening)} {thought} | {answer}"


def rest_rule(lark: Lark, format: Format, root: Root, bodies: RootBodies) -> str:
    """What follows from the forced end of the reasoning on, where a root may reason."""
    after = replace(root, reasoning=None)
    if format.channels is not None:
        closing = f"{lark.spell(format.channels.end)} {lark.spell(format.channels.restart)}"
        return f"{closing} {_in_channels(lark, format.channels, after, bodies)}"
    assert format.thinking is not None
    gap = _gap(lark, format.thinking, root)
    answer = lark.any_text() if root.is_free else lark.rule(root_rule(lark, format, after, bodies))
    return f"{lark.spell(format.thinking.closing)} {gap}{answer}"


def _answer(lark: Lark, format: Format, calls: CallRules | None, root: Root, bodies: RootBodies) -> str:
    """What may stand where the answer begins, after any reasoning."""
    start = "" if root.is_begun else format.answer_start
    lead = "" if root.is_begun else format.lead.removeprefix(start)
    whole = "" if calls is None else calls.tail if start else calls.whole
    if root.structured is not None:
        structured = f"{lark.spell(lead)} {bodies.structured}" if lead else bodies.structured
        assert structured is not None
        return structured if calls is None else f"{structured} | {whole}"
    assert calls is not None and format.calls is not None
    if root.text is None:
        around = [lark.spell(lead + trail) for trail in format.trails] if lead else []
        return f"({' | '.join(around)})? {whole}" if around else whole
    opening = format.calls.opening
    if format.calls.is_at_start:
        plain = lark.terminal(f"/(?s:.*)/ & ~/{pattern(opening)}(?s:.*)/")
        return f"{plain} | {calls.whole}"
    text = f"{lark.text_without(opening)} | {lark.until(opening)} {calls.tail}"
    if format.trails:
        trail = f"({' | '.join(map(lark.spell, format.trails))})*"
        text += f" | {lark.text_without(opening)} {trail} ({calls.whole})?"
    if not lead:
        return text
    led = f"{lark.spell(lead)} {lark.rule(text)}"
    return f"{led} | {whole}" if start else f"{led} | {text}"


def _thought(lark: Lark, format: Format, calls: CallRules | None, root: Root, answer: str) -> str:
    """What follows inside the reasoning, up to the end; with tools active, a call's opening ends the reasoning too."""
    thinking, syntax = format.thinking, format.calls
    assert thinking is not None
    gap = _gap(lark, thinking, root)
    closed = f"{lark.until(thinking.closing)} {gap}{answer}"
    if calls is None or syntax is None or syntax.is_at_start:
        return closed
    return f"{closed} | {lark.until(syntax.opening)} {calls.tail}"


def _gap(lark: Lark, thinking: Thinking, root: Root) -> str:
    """What stands between the reasoning and an answer that is bound."""
    if root.text is not None:
        return ""
    is_before_calls = root.structured is None and thinking.call_gap is not None
    return f"{lark.spell((thinking.call_gap or '') if is_before_calls else thinking.gap)} "


def _in_channels(lark: Lark, channels: Channels, root: Root, bodies: RootBodies) -> str:
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


def _call_rules(lark: Lark, syntax: CallSyntax, calls: ToolCalls, arguments: Arguments) -> CallRules:
    """A family's syntax around each tool's name and arguments:

    begin [before_name NAME between ARGUMENTS after] separator [before_name …] end
    """
    named = [
        f"{lark.spell(tool.name + syntax.between)} {arguments(tool, index)}"
        for tool, index in zip(calls.tools, calls.indexes, strict=True)
    ]
    call = lark.rule(" | ".join(lark.rule(body) for body in named))
    most = calls.max_calls
    times = "*" if most is None or most > _MANY_CALLS else f"{{0,{most - 1}}}"
    more = f" ({lark.spell(syntax.separator + syntax.before_name)} {call}){times}"
    head = (syntax.begin + syntax.before_name).removeprefix(syntax.opening)
    tail = lark.rule(f"{lark.spell(head)} {call}{'' if most == 1 else more} {lark.spell(syntax.end)}")
    optional = f"({lark.spell(syntax.optional_begin)})? " if syntax.optional_begin else ""
    return CallRules(f"{optional}{lark.spell(syntax.opening)} {tail}", tail)


def key_of(demand: Demand) -> str:
    """A text that is the same for equal demands and for no others. Raises InvalidDemand."""
    try:
        return json.dumps(demand, default=_plain)
    except RecursionError:
        raise InvalidDemand("it is nested too deeply", "output") from None


def _plain(value: Any) -> Any:
    """What json does not know, in a form that tells different demands apart."""
    if is_dataclass(value):
        return [type(value).__name__, *(getattr(value, each.name) for each in fields(value))]
    if isinstance(value, frozenset | set):
        return sorted(value)
    return dict(value)  # a mapping of another type
