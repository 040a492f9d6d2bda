"""What a Responses body wants of its answer's shape: flat tools, the choice among them, text.format, reasoning."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction import TextGrammar, Tool, ToolKind
from proxy_inference_engine.server.convert.reasoning import Reasoning
from proxy_inference_engine.server.schemas.formats import JsonObjectFormat
from proxy_inference_engine.server.schemas.responses import (
    AllowedTools,
    AnyTool,
    Conversing,
    CustomTool,
    Format,
    FunctionTool,
    GrammarFormat,
    JsonSchemaFormat,
    Named,
    Other,
)
from proxy_inference_engine.server.schemas.tools import TextFormat
from proxy_inference_engine.state_machine.demand import (
    AnyText,
    Demand,
    InvalidDemand,
    JsonObject,
    JsonSchema,
    OutputFormat,
    ToolChoice,
)

_PARAM = "tool_choice"
_COMPILING_CHARS = 1 << 18


class Usable(NamedTuple):
    """The tools that work here, and where each stands in the body."""

    tools: tuple[Tool, ...]
    places: tuple[int, ...]


def usable_tools(tools: Sequence[AnyTool]) -> Usable:
    """Raises InvalidRequest where two have one name: a call says nothing else."""
    made: list[Tool] = []
    places: list[int] = []
    for index, tool in enumerate(tools):
        if isinstance(tool, Other):
            continue
        if any(tool.name == other.name for other in made):
            raise InvalidRequest(f"Two tools have the name {tool.name!r}.", param=f"tools[{index}].name")
        made.append(_custom(tool) if isinstance(tool, CustomTool) else _function(tool))
        places.append(index)
    return Usable(tuple(made), tuple(places))


def _function(tool: FunctionTool) -> Tool:
    return Tool(tool.name, tool.description or "", tool.parameters, is_strict=bool(tool.strict))


def _custom(tool: CustomTool) -> Tool:
    bound = tool.format if isinstance(tool.format, GrammarFormat) else None
    grammar = None if bound is None else TextGrammar(bound.syntax, bound.definition)
    return Tool(tool.name, tool.description or "", kind=ToolKind.CUSTOM, grammar=grammar)


def make_demand(body: Conversing, tools: Sequence[Tool], reasoning: Reasoning) -> Demand:
    choice = _tool_choice(body, tools)
    if body.max_tool_calls == 0:
        if choice.mode == "required":
            raise InvalidRequest("'max_tool_calls' is 0, but 'tool_choice' asks for a call.", param="max_tool_calls")
        choice = ToolChoice("none")
    return Demand(
        output=_output(body.text.format),
        tools=tuple(tools),
        tool_choice=choice,
        is_parallel=body.parallel_tool_calls and not isinstance(body.tool_choice, Named),
        max_calls=body.max_tool_calls or None,
        can_reason=reasoning.is_wanted,
        min_reasoning_tokens=reasoning.min_tokens,
        max_reasoning_tokens=reasoning.max_tokens,
    )


def demand_work(body: Conversing) -> int:
    """What a grammar costs, in characters of text gone through."""
    return 0 if not body.tools and isinstance(body.text.format, TextFormat | None) else _COMPILING_CHARS


def _output(wanted: Format | None) -> OutputFormat:
    match wanted:
        case JsonSchemaFormat():
            return JsonSchema(wanted.schema_, is_strict=wanted.strict is not False)
        case JsonObjectFormat():
            return JsonObject()
        case None | TextFormat():
            return AnyText()


def _tool_choice(body: Conversing, tools: Sequence[Tool]) -> ToolChoice:
    match body.tool_choice:
        case None:
            return ToolChoice()
        case "none" | "auto" as mode:
            return ToolChoice(mode)
        case "required":
            if not tools:
                raise _nothing_to_call()
            return ToolChoice("required")
        case AllowedTools(mode=mode, tools=references):
            return ToolChoice(mode, _known(references, tools))
        case named:
            return ToolChoice("required", _known([named], tools))


def _known(references: Iterable[Named | Other], tools: Sequence[Tool]) -> frozenset[str]:
    there = {(tool.kind.value, tool.name) for tool in tools}
    wanted = [(reference.type, reference.name) for reference in references if isinstance(reference, Named)]
    for kind, name in wanted:
        if (kind, name) not in there:
            raise InvalidRequest(f"'tools' has no {kind} tool {name!r}.", param=_PARAM)
    if not wanted:
        raise _nothing_to_call()
    return frozenset(name for _, name in wanted)


def _nothing_to_call() -> InvalidRequest:
    return InvalidRequest("'tool_choice' leaves no tool that this server can let the model call.", param=_PARAM)


def blame(error: InvalidDemand, demand: Demand, places: Sequence[int]) -> str:
    """The parameter that a refused demand is about."""
    match error.subject:
        case "output":
            return "text.format.schema" if isinstance(demand.output, JsonSchema) else "text.format"
        case "tool":
            is_custom = demand.tools[error.index].kind is ToolKind.CUSTOM
            return f"tools[{places[error.index]}].{'format' if is_custom else 'parameters'}"
        case "tool_choice":
            return _PARAM
        case "reasoning":
            return "reasoning"
