"""A chat body as what is asked of the model."""

from collections.abc import Iterator
from typing import NamedTuple

from proxy_inference_engine.errors import PARAM, ClientError, InvalidRequest
from proxy_inference_engine.interaction import Content, Interaction, Role, Tool, ToolKind
from proxy_inference_engine.served.ask import Ask, ChatPrompt, ParamNamer
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.shared.fields import CacheControl, limit_wishes, pin_seconds, sampling_wishes
from proxy_inference_engine.server.apis.shared.messages import make_turns, marks_cache, prompt_end, unknown_in
from proxy_inference_engine.server.apis.shared.reasoning import ReasoningWishes, make_reasoning
from proxy_inference_engine.server.apis.shared.tools import (
    ChatFunction,
    NamedCustom,
    NamedFunction,
    make_output,
    make_tool_choice,
    make_tools,
    name_output,
)
from proxy_inference_engine.state_machine.demand import AnyText, Demand, InvalidDemand, ToolChoice


class Conversation(NamedTuple):
    """One conversation's body, and how errors name its parameters."""

    body: ChatRequest
    name_param: ParamNamer = str


def make_ask(conversation: Conversation, model: ServedModel, tenant: str, id_: str) -> Ask:
    """Raises ClientError that names the parameter."""
    try:
        return _make_ask(conversation.body, model, tenant, id_, conversation.name_param)
    except ClientError as error:
        error.rename(conversation.name_param)
        raise


def _make_ask(body: ChatRequest, model: ServedModel, tenant: str, id_: str, name_param: ParamNamer) -> Ask:
    turns = make_turns(body.messages)
    reasoning = make_reasoning(body, model)
    return Ask(
        id=id_,
        tenant=tenant,
        prompt=_prompt(turns, reasoning, body),
        sampling=sampling_wishes(body),
        limits=limit_wishes(body, _max_tokens(body)),
        demand=make_demand(body, make_tools(body.tools) if body.tools else (), reasoning),
        num_choices=body.num_generated,
        num_top_logprobs=body.num_top_logprobs(_shown_top_logprobs(body)),
        marks_forced=body.forced_tokens,
        prediction="" if body.prediction is None else body.prediction.text,
        pin_seconds=pin_seconds(_marks(body)),
        name_param=name_param,
        name_demand=name_demand,
    )


def _prompt(turns: list[Interaction], reasoning: ReasoningWishes, body: ChatRequest) -> ChatPrompt:
    if not body.response_prefix:
        return ChatPrompt(turns, reasoning.variables, **prompt_end(turns, body))
    if body.continue_final_message or body.add_generation_prompt is False:
        raise InvalidRequest(f"{PARAM} says already how the prompt ends.", param="response_prefix")
    begun = Interaction(Role.ASSISTANT, (Content.of(body.response_prefix),))
    return ChatPrompt([*turns, begun], reasoning.variables, add_generation_prompt=False, continue_final=True)


def _marks(body: ChatRequest) -> Iterator[CacheControl]:
    """A prompt that is computed ahead is to be found later."""
    yield {} if not body.prewarm else {"ttl": "5m"}
    yield body.cache_control
    yield from marks_cache(body.messages)
    yield from (tool.cache_control for tool in body.tools if isinstance(tool, ChatFunction))


def not_honoured(conversation: Conversation, model: ServedModel) -> list[str]:
    """What the client sent and changes nothing for this model, by name."""
    body = conversation.body
    prediction = ["prediction"] if body.prediction is not None and not model.answerer.can_draft else []
    guessed = () if body.prediction is None or isinstance(body.prediction.content, str) else body.prediction.content
    prediction += [name for part in guessed for name in part.extras("prediction.content.")]
    names = (*body.ignored, *make_reasoning(body, model).ignored, *prediction)
    return [conversation.name_param(name) for name in dict.fromkeys((*names, *unknown_in(body.messages)))]


def names_tool(body: ChatRequest) -> bool:
    """Whether one tool has to be called, and only once."""
    return isinstance(body.tool_choice, NamedFunction | NamedCustom)


def _max_tokens(body: ChatRequest) -> int | None:
    """The limit has two names; both may be given when they agree."""
    if body.prewarm:
        return 0
    if body.max_tokens is None or body.max_completion_tokens is None:
        return body.max_completion_tokens or body.max_tokens
    if body.max_tokens != body.max_completion_tokens:
        raise InvalidRequest(
            f"{PARAM} and 'max_completion_tokens' are the same limit and have different values.", param="max_tokens"
        )
    return body.max_tokens


def _shown_top_logprobs(body: ChatRequest) -> int | None:
    if not body.logprobs:
        for name in ("top_logprobs", "forced_tokens"):
            if getattr(body, name):
                raise InvalidRequest(f"{PARAM} needs logprobs: true.", param=name)
        return None
    return body.top_logprobs or 0


def make_demand(body: ChatRequest, tools: tuple[Tool, ...], reasoning: ReasoningWishes) -> Demand:
    is_bound = body.response_format is not None or bool(body.banned_strings)
    return Demand(
        output=make_output(body.response_format, body.banned_strings) if is_bound else AnyText(),
        tools=tools,
        tool_choice=ToolChoice() if body.tool_choice is None else make_tool_choice(body.tool_choice, tools),
        is_parallel=body.parallel_tool_calls and not names_tool(body),
        can_reason=reasoning.is_wanted,
        min_reasoning_tokens=reasoning.min_tokens,
        max_reasoning_tokens=reasoning.max_tokens,
        closes_objects=not body.open_objects,
        any_order=body.open_objects,
    )


def name_demand(error: InvalidDemand, demand: Demand) -> str:
    """The parameter that a refused demand is about."""
    match error.subject:
        case "output":
            return name_output(demand.output)
        case "tool":
            is_custom = demand.tools[error.index].kind is ToolKind.CUSTOM
            return f"tools[{error.index}].{'custom.format' if is_custom else 'function.parameters'}"
        case "tool_choice":
            return "tool_choice"
        case "reasoning":
            return "enable_thinking"
