"""The tools of a body and what it says about calling them. Proves what one field alone cannot show."""

from collections.abc import Iterable, Sequence

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction import TextGrammar, Tool, ToolKind
from proxy_inference_engine.server.schemas.chat import ChatRequest
from proxy_inference_engine.server.schemas.tools import (
    AllowedTools,
    CustomTool,
    FunctionTool,
    NamedCustom,
    NamedFunction,
)
from proxy_inference_engine.state_machine.demand import ToolChoice

_PARAM = "tool_choice"


def make_tools(tools: Sequence[FunctionTool | CustomTool]) -> tuple[Tool, ...]:
    """The tools, in their order. Names are unique whatever the kind, since a call says nothing else."""
    made = tuple(_custom(tool) if isinstance(tool, CustomTool) else _function(tool) for tool in tools)
    seen: set[str] = set()
    for index, tool in enumerate(made):
        if tool.name in seen:
            raise InvalidRequest(
                f"Two tools have the name {tool.name!r}.", param=f"tools[{index}].{tool.kind.value}.name"
            )
        seen.add(tool.name)
    return made


def _function(tool: FunctionTool) -> Tool:
    spec = tool.function
    return Tool(spec.name, spec.description or "", spec.parameters, is_strict=bool(spec.strict))


def _custom(tool: CustomTool) -> Tool:
    spec = tool.custom
    grammar = None if spec.grammar is None else TextGrammar(spec.grammar.syntax, spec.grammar.definition)
    return Tool(spec.name, spec.description or "", kind=ToolKind.CUSTOM, grammar=grammar)


def make_tool_choice(body: ChatRequest, tools: Sequence[Tool]) -> ToolChoice:
    match body.tool_choice:
        case None:
            return ToolChoice()
        case "none" | "auto" as mode:
            return ToolChoice(mode)
        case "required":
            _require(tools)
            return ToolChoice("required")
        case AllowedTools(allowed_tools=allowed):
            return ToolChoice(allowed.mode, _known(allowed.tools, tools))
        case named:
            return ToolChoice("required", _known([named], tools))


def is_named(body: ChatRequest) -> bool:
    """Whether one tool has to be called, and only once."""
    return isinstance(body.tool_choice, NamedFunction | NamedCustom)


def may_call(body: ChatRequest) -> bool:
    return bool(body.tools) and body.tool_choice != "none"


def _known(references: Iterable[NamedFunction | NamedCustom], tools: Sequence[Tool]) -> frozenset[str]:
    _require(tools)
    there = {(tool.kind, tool.name) for tool in tools}
    wanted = [_target(reference) for reference in references]
    for kind, name in wanted:
        if (kind, name) not in there:
            raise InvalidRequest(f"'tools' has no {kind.value} tool {name!r}.", param=_PARAM)
    return frozenset(name for _, name in wanted)


def _target(reference: NamedFunction | NamedCustom) -> tuple[ToolKind, str]:
    if isinstance(reference, NamedCustom):
        return ToolKind.CUSTOM, reference.custom.name
    return ToolKind.FUNCTION, reference.function.name


def _require(tools: Sequence[Tool]) -> None:
    if not tools:
        raise InvalidRequest("'tool_choice' asks for a call, but there are no tools.", param=_PARAM)
