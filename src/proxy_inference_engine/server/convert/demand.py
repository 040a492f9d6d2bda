"""A chat body as the demand that its machine is built from, and the parameter a refused demand is about."""

from typing import assert_never

from proxy_inference_engine.interaction import TextGrammar, Tool, ToolKind
from proxy_inference_engine.server.convert.reasoning import Reasoning
from proxy_inference_engine.server.convert.tools import is_named, make_tool_choice
from proxy_inference_engine.server.schemas.chat import ChatRequest
from proxy_inference_engine.server.schemas.formats import (
    ChoiceFormat,
    GrammarFormat,
    JsonObjectFormat,
    JsonSchemaFormat,
    ResponseFormat,
)
from proxy_inference_engine.server.schemas.tools import TextFormat
from proxy_inference_engine.state_machine.demand import (
    AnyText,
    Choice,
    Demand,
    InvalidDemand,
    JsonObject,
    JsonSchema,
    OutputFormat,
)

_COMPILING_CHARS = 1 << 18


def make_demand(body: ChatRequest, tools: tuple[Tool, ...], reasoning: Reasoning) -> Demand:
    return Demand(
        output=_output(body.response_format),
        tools=tools,
        tool_choice=make_tool_choice(body, tools),
        is_parallel=body.parallel_tool_calls and not is_named(body),
        can_reason=reasoning.is_wanted,
        min_reasoning_tokens=reasoning.min_tokens,
        max_reasoning_tokens=reasoning.max_tokens,
    )


def demand_work(body: ChatRequest) -> int:
    """What a grammar costs, in characters of text gone through."""
    return 0 if not body.tools and isinstance(body.response_format, TextFormat | None) else _COMPILING_CHARS


def _output(wanted: ResponseFormat | None) -> OutputFormat:
    match wanted:
        case None | TextFormat():
            return AnyText()
        case JsonObjectFormat():
            return JsonObject()
        case JsonSchemaFormat(json_schema=spec):
            return JsonSchema(spec.schema_, is_strict=spec.strict is not False)
        case GrammarFormat(syntax=syntax, definition=definition):
            return TextGrammar(syntax, definition)
        case ChoiceFormat(choices=choices):
            return Choice(tuple(choices))
        case _:
            assert_never(wanted)


def blame(error: InvalidDemand, demand: Demand) -> str:
    """The parameter that a refused demand is about."""
    match error.subject:
        case "output":
            return _OUTPUT_PARAMS.get(type(demand.output), "response_format")
        case "tool":
            is_custom = demand.tools[error.index].kind is ToolKind.CUSTOM
            return f"tools[{error.index}].{'custom.format' if is_custom else 'function.parameters'}"
        case "tool_choice":
            return "tool_choice"
        case "reasoning":
            return "enable_thinking"


_OUTPUT_PARAMS: dict[type, str] = {
    JsonSchema: "response_format.json_schema.schema",
    TextGrammar: "response_format.definition",
    Choice: "response_format.choices",
}
