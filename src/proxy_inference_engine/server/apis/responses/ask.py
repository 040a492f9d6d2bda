"""A Responses body as what is asked of the model: its history as turns, and its demand."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain

from proxy_inference_engine.errors import PARAM, InvalidRequest
from proxy_inference_engine.interaction import Interaction, Role, ToolKind
from proxy_inference_engine.served.ask import Ask, ChatPrompt, Turns
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.apis.responses.history import History
from proxy_inference_engine.server.apis.responses.items import (
    AdditionalToolsItem,
    AnyItem,
    FoundToolsItem,
    HostedItem,
    unknown_in,
)
from proxy_inference_engine.server.apis.responses.offer import NOTHING, CallName, OfferedTools, hosted_tools
from proxy_inference_engine.server.apis.responses.schema import (
    Conversing,
    FlatAllowedTools,
    FlatJsonSchema,
    NamedTool,
    ResponseRequest,
    TextFormats,
)
from proxy_inference_engine.server.apis.responses.tools import HostedTool
from proxy_inference_engine.server.apis.responses.turns import ItemTurns
from proxy_inference_engine.server.apis.shared.fields import limit_wishes, sampling_wishes
from proxy_inference_engine.server.apis.shared.reasoning import ReasoningWishes, make_reasoning
from proxy_inference_engine.server.apis.shared.sealer import Sealer
from proxy_inference_engine.server.apis.shared.tools import JsonObjectFormat, TextFormat
from proxy_inference_engine.state_machine.demand import (
    AnyText,
    Demand,
    InvalidDemand,
    JsonObject,
    JsonSchema,
    OutputFormat,
    ToolChoice,
)

_CHOICE = "tool_choice"
_NUM_WRITINGS = 5  # a log-probability comes in a delta, and in the ends of its text, its part, its item, the response
# What the layers below call things, in the words of this API.
_PARAMS = {"messages": "input", "reasoning_effort": "reasoning.effort"}


def make_ask(
    body: Conversing, turns: Turns, model: ServedModel, tenant: str, id_: str, offered: OfferedTools = NOTHING
) -> Ask:
    """Raises ClientError that names the parameter."""
    reasoning = make_reasoning(body, model, _name_param)
    return Ask(
        id=id_,
        tenant=tenant,
        prompt=_prompt(body, turns, reasoning),
        sampling=sampling_wishes(body),
        limits=limit_wishes(body, body.max_output_tokens),
        demand=make_demand(body, offered, reasoning),
        num_top_logprobs=body.num_top_logprobs,
        marks_forced=_marks_forced(body),
        num_writings=_NUM_WRITINGS,
        name_param=_name_param,
        name_demand=partial(_name_demand, offered.places),
    )


def _marks_forced(body: Conversing) -> bool:
    if not isinstance(body, ResponseRequest) or not body.forced_tokens:
        return False
    if body.num_top_logprobs is None:
        message = "'forced_tokens' needs log-probabilities: include message.output_text.logprobs."
        raise InvalidRequest(message, param="forced_tokens")
    return True


def _prompt(body: Conversing, turns: Turns, reasoning: ReasoningWishes) -> ChatPrompt:
    continues = body.continue_final_message
    if continues and turns[-1].role is not Role.ASSISTANT:
        raise InvalidRequest(f"{PARAM} needs a last message from the assistant.", param="continue_final_message")
    return ChatPrompt(
        turns,
        reasoning.variables,
        add_generation_prompt=not continues,
        continue_final=continues,
        can_shorten=body.truncation == "auto",
    )


def _name_param(param: str) -> str:
    return _PARAMS.get(param, param)


def make_turns(body: Conversing, items: Sequence[AnyItem], num_earlier: int, sealer: Sealer) -> list[Interaction]:
    """All that is said to the model. `num_earlier` of the items were stored; `sealer` is the tenant's."""
    made = ItemTurns(sealer, num_earlier)
    for item in items:
        made.add(item)
    turns = made.finish()
    if body.instructions:
        turns.insert(0, Interaction.of(Role.SYSTEM, body.instructions))
    # A probe may say nothing at all.
    return turns or [Interaction.of(Role.USER, "")]


def not_honoured(body: Conversing, history: History, model: ServedModel) -> list[str]:
    """What is skipped, by name: what only other servers host, effort that cannot be made, what nothing here reads."""
    idle = make_reasoning(body, model, _name_param).ignored
    tools = hosted_tools(body.tools) if body.tools else ()
    items = chain.from_iterable(_hosted(item, f"input[{index}]") for index, item in enumerate(history.own))
    return [*tools, *items, *idle, *body.ignored, *dict.fromkeys(unknown_in(history.own))]


def _hosted(item: AnyItem, place: str) -> Iterable[str]:
    match item:
        case HostedItem():
            return [f"{place}:{item.type}"]
        case AdditionalToolsItem() | FoundToolsItem():
            return hosted_tools(item.tools, f"{place}.tools")
    return ()


def make_demand(body: Conversing, offered: OfferedTools, reasoning: ReasoningWishes) -> Demand:
    choice = _tool_choice(body, offered)
    if body.max_tool_calls == 0:
        if choice.mode == "required":
            raise InvalidRequest("'max_tool_calls' is 0, but 'tool_choice' asks for a call.", param="max_tool_calls")
        choice = ToolChoice("none")
    return Demand(
        output=_output(body.text.format),
        tools=offered.tools,
        tool_choice=choice,
        is_parallel=body.parallel_tool_calls and not isinstance(body.tool_choice, NamedTool),
        max_calls=body.max_tool_calls or None,
        can_reason=reasoning.is_wanted,
        min_reasoning_tokens=reasoning.min_tokens,
        max_reasoning_tokens=reasoning.max_tokens,
        closes_objects=not body.open_objects,
        any_order=body.open_objects,
    )


def _output(wanted: TextFormats | None) -> OutputFormat:
    match wanted:
        case FlatJsonSchema():
            return JsonSchema(wanted.schema_, is_strict=wanted.strict is not False)
        case JsonObjectFormat():
            return JsonObject()
        case None | TextFormat():
            return AnyText()


def _tool_choice(body: Conversing, offered: OfferedTools) -> ToolChoice:
    match body.tool_choice:
        case None:
            return ToolChoice()
        case "none" | "auto" as mode:
            return ToolChoice(mode)
        case "required":
            if not offered.tools:
                raise _nothing_to_call()
            return ToolChoice("required")
        case FlatAllowedTools(mode=mode, tools=references):
            return ToolChoice(mode, _known(references, offered))
        case named:
            return ToolChoice("required", _known([named], offered))


def _known(references: Iterable[NamedTool | HostedTool], offered: OfferedTools) -> frozenset[str]:
    """The model's names of what is referred to; a reference to a namespace means all that is in it."""
    found: set[str] = set()
    for reference in references:
        if not isinstance(reference, NamedTool):
            found |= {name for name, call in offered.names.items() if _is_named(call, reference)}
            continue
        wanted = CallName(reference.type, reference.name, reference.namespace)
        fitting = [name for name, call in offered.names.items() if call == wanted]
        # Who leaves the namespace out may still mean one tool only.
        fitting = fitting or [name for name, call in offered.names.items() if call._replace(namespace=None) == wanted]
        if len(fitting) != 1:
            raise InvalidRequest(f"'tools' has no {reference.type} tool {reference.name!r}.", param=_CHOICE)
        found.update(fitting)
    if not found:
        raise _nothing_to_call()
    return frozenset(found)


def _is_named(call: CallName, reference: HostedTool) -> bool:
    name = (reference.model_extra or {}).get("name")
    match reference.type:
        case "namespace":
            return call.namespace is not None and call.namespace == name
        case "tool_search":
            return call.kind == "search"
        case _:
            return False


def _nothing_to_call() -> InvalidRequest:
    return InvalidRequest("'tool_choice' leaves no tool that this server can let the model call.", param=_CHOICE)


def _name_demand(places: Sequence[str], error: InvalidDemand, demand: Demand) -> str:
    """The parameter that a refused demand is about. `places`: where the demand's tools stand in the body."""
    match error.subject:
        case "output":
            return "text.format.schema" if isinstance(demand.output, JsonSchema) else "text.format"
        case "tool":
            is_custom = demand.tools[error.index].kind is ToolKind.CUSTOM
            return f"{places[error.index]}.{'format' if is_custom else 'parameters'}"
        case "tool_choice":
            return _CHOICE
        case "reasoning":
            return "reasoning"
