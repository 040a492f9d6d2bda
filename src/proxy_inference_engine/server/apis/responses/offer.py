"""The tools that a model is offered, under names that are its own, and what those names are to the client."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction import TextGrammar, Tool, ToolKind
from proxy_inference_engine.server.apis.responses.items import AdditionalToolsItem, AnyItem, FoundToolsItem
from proxy_inference_engine.server.apis.responses.tools import (
    AnyTool,
    FlatCustom,
    FlatFunction,
    FlatGrammar,
    HostedTool,
    NamespaceTool,
    ToolSearch,
)

SEARCH = "tool_search"
MAX_OFFERED = 512


class CallName(NamedTuple):
    """What the client calls a tool."""

    kind: Literal["function", "custom", "search"]
    name: str
    namespace: str | None = None


class OfferedTools(NamedTuple):
    """The tools that work here, where each stands in the body, and the client's names by the model's."""

    tools: tuple[Tool, ...] = ()
    places: tuple[str, ...] = ()
    names: Mapping[str, CallName] = MappingProxyType({})


class _Offer(NamedTuple):
    tool: Tool
    place: str
    name: CallName


NOTHING = OfferedTools()


def qualified(name: str, namespace: str | None) -> str:
    """One name for the model, made of letters that every family's syntax takes."""
    return name if namespace is None else f"{namespace.rstrip('_')}__{name}"


def offered_tools(tools: Sequence[AnyTool], items: Sequence[AnyItem] = (), num_earlier: int = 0) -> OfferedTools:
    """The tools of the body and of the items, of two with one name the later; the first `num_earlier` were stored.

    Raises InvalidRequest where a body has one name twice: a call says nothing else.
    """
    found: dict[str, _Offer] = {}
    for offer in _offers(tools, "tools"):
        if offer.tool.name in found:
            raise InvalidRequest(f"Two tools have the name {offer.tool.name!r}.", param=f"{offer.place}.name")
        found[offer.tool.name] = offer
    for index, item in enumerate(items):
        if isinstance(item, AdditionalToolsItem | FoundToolsItem):
            number = index - num_earlier
            place = "input" if number < 0 else f"input[{number}].tools"
            found |= {offer.tool.name: offer for offer in _offers(item.tools, place)}
    if len(found) > MAX_OFFERED:
        raise InvalidRequest(f"There are {len(found)} tools, at most {MAX_OFFERED} are offered.", param="tools")
    offers = found.values()
    return OfferedTools(
        tuple(offer.tool for offer in offers),
        tuple(offer.place for offer in offers),
        {offer.tool.name: offer.name for offer in offers},
    )


def _offers(tools: Sequence[AnyTool], param: str) -> Iterator[_Offer]:
    for index, tool in enumerate(tools):
        place = f"{param}[{index}]"
        match tool:
            case NamespaceTool():
                for number, inner in enumerate(tool.tools):
                    if not isinstance(inner, HostedTool):
                        yield _offer(inner, f"{place}.tools[{number}]", tool.name)
            case ToolSearch():
                if tool.execution == "client":
                    made = Tool(SEARCH, tool.description or "Finds tools.", tool.parameters or {"type": "object"})
                    yield _Offer(made, place, CallName("search", SEARCH))
            case FlatFunction() | FlatCustom():
                yield _offer(tool, place, None)
            case HostedTool():
                pass


def _offer(tool: FlatFunction | FlatCustom, place: str, namespace: str | None) -> _Offer:
    name = qualified(tool.name, namespace)
    if isinstance(tool, FlatFunction):
        made = Tool(name, tool.description or "", tool.parameters, is_strict=bool(tool.strict))
        return _Offer(made, place, CallName("function", tool.name, namespace))
    bound = tool.format if isinstance(tool.format, FlatGrammar) and not takes_anything(tool.format) else None
    grammar = None if bound is None else TextGrammar(bound.syntax, bound.definition)
    made = Tool(name, tool.description or "", kind=ToolKind.CUSTOM, grammar=grammar)
    return _Offer(made, place, CallName("custom", tool.name, namespace))


_RULE = re.compile(r"^\s*([a-zA-Z_]\w*)\s*:(.*)$", re.ASCII)
_ANYTHING = frozenset(f"/{text}{times}/" for text in (r"[\s\S]", r"(.|\n)", r"(?:.|\n)") for times in "+*")


def takes_anything(grammar: FlatGrammar) -> bool:
    """Whether a Lark grammar plainly allows every text, as that of Codex's `exec` does.

    Such a text would swallow what ends a call; without a grammar it is written as a string, whose end can be told.
    """
    if grammar.syntax != "lark":
        return False
    rules: dict[str, list[str]] = {}
    for line in grammar.definition.splitlines():
        found = _RULE.match(line)
        if found is not None:
            body = found[2].strip()
            rules[found[1]] = [body] if body in _ANYTHING else [each.strip() for each in body.split("|")]
    seen: set[str] = set()
    waiting = ["start"]
    while waiting:
        name = waiting.pop()
        if name in _ANYTHING:
            return True
        if name not in seen:
            seen.add(name)
            waiting += rules.get(name, ())
    return False


def hosted_tools(tools: Sequence[AnyTool], param: str = "tools") -> Iterator[str]:
    """The tools that nothing here can run, by place and type."""
    for index, tool in enumerate(tools):
        if isinstance(tool, HostedTool):
            yield f"{param}[{index}]:{tool.type}"
        elif isinstance(tool, NamespaceTool):
            yield from hosted_tools(tool.tools, f"{param}[{index}].tools")
