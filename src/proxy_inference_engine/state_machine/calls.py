"""Tool calls as grammar: a family's syntax around each tool's name and arguments."""

from collections.abc import Callable
from typing import NamedTuple

from proxy_inference_engine.formats.syntax import CallSyntax
from proxy_inference_engine.interaction import Tool
from proxy_inference_engine.state_machine.lark import Lark
from proxy_inference_engine.state_machine.states import ToolCalls

# A tool and its index in the client's list → its arguments as part of a rule, with the text that comes after them.
Arguments = Callable[[Tool, int], str]
_MANY_CALLS = 1 << 20  # no context has room for so many


class CallRules(NamedTuple):
    """`whole` is the opening and all the rest, `tail` what follows the opening."""

    whole: str
    tail: str


def call_rules(lark: Lark, syntax: CallSyntax, calls: ToolCalls, arguments: Arguments) -> CallRules:
    """begin [before_name NAME between ARGUMENTS after] separator [before_name …] end"""
    named = [
        f"{lark.spell(tool.name + syntax.between)} {arguments(tool, index)}"
        for tool, index in zip(calls.tools, calls.indexes, strict=True)
    ]
    call = lark.rule(" | ".join(lark.rule(body) for body in named))
    more = f" ({lark.spell(syntax.separator + syntax.before_name)} {call}){_times(calls.max_calls)}"
    head = (syntax.begin + syntax.before_name).removeprefix(syntax.opening)
    tail = lark.rule(f"{lark.spell(head)} {call}{'' if calls.max_calls == 1 else more} {lark.spell(syntax.end)}")
    optional = f"({lark.spell(syntax.optional_begin)})? " if syntax.optional_begin else ""
    return CallRules(f"{optional}{lark.spell(syntax.opening)} {tail}", tail)


def _times(max_calls: int | None) -> str:
    """How often another call may follow the first."""
    return "*" if max_calls is None or max_calls > _MANY_CALLS else f"{{0,{max_calls - 1}}}"
