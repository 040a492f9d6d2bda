"""What a body in Anthropic's format demands of the answer, what it says about reasoning, and what is not honoured."""

from collections.abc import Mapping, Sequence

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.formats import Format
from proxy_inference_engine.interaction import Tool
from proxy_inference_engine.server.convert.reasoning import Reasoning
from proxy_inference_engine.server.convert.relaxed import ignored_headers
from proxy_inference_engine.server.param import shorten
from proxy_inference_engine.server.schemas.anthropic import CountRequest, CustomTool, HostedTool
from proxy_inference_engine.state_machine.demand import AnyText, Demand, InvalidDemand, JsonSchema, ToolChoice

_COMPILING_CHARS = 1 << 18
_SWITCH, _EFFORT = "enable_thinking", "reasoning_effort"  # variables of chat templates


def make_tools(body: CountRequest) -> tuple[Tool, ...]:
    """Those that the client runs itself; the others are skipped, and named among what is ignored."""
    made: dict[str, Tool] = {}
    for index, tool in enumerate(body.tools):
        if isinstance(tool, HostedTool):
            continue
        if tool.name in made:
            raise InvalidRequest(f"Two tools have the name {tool.name!r}.", param=f"tools[{index}].name")
        made[tool.name] = Tool(tool.name, tool.description or "", tool.input_schema, is_strict=bool(tool.strict))
    return tuple(made.values())


def make_demand(body: CountRequest, reasoning: Reasoning) -> Demand:
    choice, tools = body.tool_choice, make_tools(body)
    format_ = None if body.output_config is None else body.output_config.format
    is_single = choice is not None and (choice.type == "tool" or bool(choice.disable_parallel_tool_use))
    return Demand(
        output=AnyText() if format_ is None else JsonSchema(format_.schema_),
        tools=tools,
        tool_choice=_tool_choice(body, tools),
        is_parallel=not is_single,
        can_reason=reasoning.is_wanted,
        max_reasoning_tokens=reasoning.max_tokens,
    )


def _tool_choice(body: CountRequest, tools: tuple[Tool, ...]) -> ToolChoice:
    choice = body.tool_choice
    if choice is None or choice.type == "auto":
        return ToolChoice()
    if choice.type == "none":
        return ToolChoice("none")
    if not tools:
        raise InvalidRequest(
            "'tool_choice' asks for a call, but there is no tool that can be called.", param="tool_choice"
        )
    if choice.type == "any":
        return ToolChoice("required")
    if all(tool.name != choice.name for tool in tools):
        raise InvalidRequest(f"'tools' has no tool {choice.name!r} that can be called.", param="tool_choice.name")
    return ToolChoice("required", frozenset({choice.name or ""}))


def make_blame(body: CountRequest) -> "Blamer":
    return Blamer([index for index, tool in enumerate(body.tools) if isinstance(tool, CustomTool)])


class Blamer:
    """Names the parameter that a refused demand is about. `indexes`: where the demand's tools stand in the body."""

    def __init__(self, indexes: list[int]) -> None:
        self._indexes = indexes

    def __call__(self, error: InvalidDemand, _demand: Demand) -> str:
        match error.subject:
            case "output":
                return "output_config.format.schema"
            case "tool":
                return f"tools[{self._indexes[error.index]}].input_schema"
            case "tool_choice":
                return "tool_choice"
            case "reasoning":
                return "thinking"


def make_reasoning(body: CountRequest, format: Format, readable: frozenset[str]) -> Reasoning:
    """Off unless asked for, as in this format; a model that has no switch is left to think, in blocks of its own."""
    variables: dict[str, object] = {}
    effort = None if body.output_config is None else body.output_config.effort
    if effort is not None and _EFFORT in readable:
        variables[_EFFORT] = effort
    is_asked = asks_to_think(body)
    if _SWITCH in readable:
        variables[_SWITCH] = is_asked
    can_stop = _SWITCH in readable or not can_think(format)
    budget = body.thinking.budget_tokens if is_asked and body.thinking is not None else None
    return Reasoning(variables, is_wanted=is_asked or not can_stop, max_tokens=budget)


def asks_to_think(body: CountRequest) -> bool:
    return body.thinking is not None and body.thinking.type in ("enabled", "adaptive")


def can_think(format: Format) -> bool:
    return format.thinking is not None or format.channels is not None


def not_honoured(
    body: CountRequest, format: Format, readable: frozenset[str], unseen: Sequence[str] = ()
) -> Mapping[str, str]:
    """The header that names what the client sent and nothing here honours; `unseen`: images among it."""
    names = dict.fromkeys(body.unknown)
    names |= dict.fromkeys(f"tools.{shorten(tool.type)}" for tool in body.tools if isinstance(tool, HostedTool))
    if body.thinking is not None and (not can_think(format) if asks_to_think(body) else _cannot_stop(format, readable)):
        names["thinking"] = None
    if body.output_config is not None and body.output_config.effort is not None and _EFFORT not in readable:
        names["output_config.effort"] = None
    return ignored_headers([*names, *unseen])


def _cannot_stop(format: Format, readable: frozenset[str]) -> bool:
    return can_think(format) and _SWITCH not in readable


def demand_work(body: CountRequest) -> int:
    """What a grammar costs, in characters of text gone through."""
    has_format = body.output_config is not None and body.output_config.format is not None
    return _COMPILING_CHARS if body.tools or has_format else 0
