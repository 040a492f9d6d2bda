"""A body in Ollama's format as what is asked of the model, and what of it is not honoured."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType

from proxy_inference_engine.errors import PARAM, InvalidRequest
from proxy_inference_engine.interaction import Content, Interaction, Role, Tool, ToolCall
from proxy_inference_engine.served.ask import Ask, ChatPrompt, RawPrompt
from proxy_inference_engine.served.images import image_content
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.apis.ollama.schema import (
    OllamaChat,
    OllamaFields,
    OllamaFormat,
    OllamaGenerate,
    OllamaMessage,
    OllamaTool,
)
from proxy_inference_engine.server.apis.shared.reasoning import ReasoningWishes, make_reasoning
from proxy_inference_engine.server.http.wire import new_id
from proxy_inference_engine.state_machine.demand import (
    AnyText,
    Demand,
    InvalidDemand,
    JsonObject,
    JsonSchema,
    OutputFormat,
)

# What the layers below call things, in the words of this API.
_PARAMS = {"enable_thinking": "think", "reasoning_effort": "think", "stop": "options.stop"}


def make_chat_ask(body: OllamaChat, model: ServedModel, tenant: str) -> Ask:
    """Raises ClientError that names the parameter."""
    turns = make_turns(body.messages)
    continues = _continues(turns)
    reasoning = make_reasoning(body, model, _name_param)
    demand = _demand(body.format, make_tools(body.tools), reasoning)
    # Who has begun to answer does not go back to thinking.
    demand = replace(demand, can_reason=False) if continues else demand
    prompt = ChatPrompt(
        turns,
        reasoning.variables,
        add_generation_prompt=not continues,
        continue_final=continues,
        can_shorten=body.truncate,
    )
    return _ask(body, prompt, demand, tenant)


def make_generate_ask(body: OllamaGenerate, model: ServedModel, tenant: str) -> Ask:
    """A prompt as a conversation of one question, or as it is. Raises ClientError that names the parameter."""
    if body.raw or body.suffix:
        _check_raw(body)
        demand = Demand(output=_output(body.format), closes_objects=True)
        return _ask(body, RawPrompt(body.prompt, body.suffix), demand, tenant)
    reasoning = make_reasoning(body, model, _name_param)
    question = Interaction(Role.USER, (*_images(body.images, "images"), Content.of(body.prompt)))
    turns = [Interaction.of(Role.SYSTEM, body.system), question] if body.system else [question]
    prompt = ChatPrompt(turns, reasoning.variables, can_shorten=body.truncate)
    return _ask(body, prompt, _demand(body.format, (), reasoning), tenant)


def _ask(body: OllamaFields, prompt: ChatPrompt | RawPrompt, demand: Demand, tenant: str) -> Ask:
    return Ask(
        id=new_id("ollama-"),
        tenant=tenant,
        prompt=prompt,
        sampling=body.options.sampling(),
        limits=body.options.limits(),
        demand=demand,
        num_top_logprobs=body.num_top_logprobs,
        name_param=_name_param if isinstance(body, OllamaChat) else _name_generate_param,
        name_demand=_name_demand,
    )


def _check_raw(body: OllamaGenerate) -> None:
    """Refuse fields of the chat template beside a raw prompt or a gap to fill, which never go through it."""
    why = "with 'raw'" if body.raw else "with 'suffix'"
    for param, value in (("system", body.system), ("images", body.images), ("format", body.suffix and body.format)):
        if value:
            raise InvalidRequest(f"{PARAM} is not supported {why}.", param=param, code="unsupported_parameter")


def _name_param(param: str) -> str:
    return _PARAMS.get(param, param)


def _name_generate_param(param: str) -> str:
    return "prompt" if param == "messages" else _name_param(param)


def _name_demand(error: InvalidDemand, _demand: Demand) -> str:
    match error.subject:
        case "output":
            return "format"
        case "tool":
            return f"tools[{error.index}].function.parameters"
        case "tool_choice":
            return "tools"
        case "reasoning":
            return "think"


def _demand(wanted: OllamaFormat | None, tools: tuple[Tool, ...], reasoning: ReasoningWishes) -> Demand:
    return Demand(output=_output(wanted), tools=tools, can_reason=reasoning.is_wanted, closes_objects=True)


def _output(wanted: OllamaFormat | None) -> OutputFormat:
    """The format that is wanted. What no grammar can bind is named in a header: nobody can be strict here."""
    if isinstance(wanted, dict):
        return JsonSchema(wanted, is_strict=False)
    return JsonObject() if wanted else AnyText()


def make_tools(tools: Sequence[OllamaTool]) -> tuple[Tool, ...]:
    made: dict[str, Tool] = {}
    for index, tool in enumerate(tools):
        spec = tool.function
        if spec.name in made:
            raise InvalidRequest(f"Two tools have the name {spec.name!r}.", param=f"tools[{index}].function.name")
        made[spec.name] = Tool(spec.name, spec.description or "", spec.parameters)
    return tuple(made.values())


def _continues(turns: Sequence[Interaction]) -> bool:
    """Whether the answer goes on with the last message: in this format it does where that is the assistant's."""
    last = turns[-1]
    return last.role is Role.ASSISTANT and not last.calls and bool(last.text.strip())


def make_turns(messages: Sequence[OllamaMessage]) -> list[Interaction]:
    """A result often names its tool and not its call: it then answers the oldest call of that tool that has none."""
    turns: list[Interaction] = []
    waiting: dict[str, str] = {}  # id of every call without a result → name of its tool
    for index, message in enumerate(messages):
        param = f"messages[{index}].images"
        match message.role:
            case "assistant":
                turns.append(_said(message, index))
                waiting |= {call.id: call.name for call in turns[-1].calls}
            case "tool":
                id_ = _answered(message, waiting)
                name = message.tool or waiting.get(id_, "")
                waiting.pop(id_, None)
                metadata = {key: value for key, value in (("tool_call_id", id_), ("name", name)) if value}
                turns.append(Interaction(Role.TOOL, _contents(message, param), MappingProxyType(metadata)))
            case _:
                turns.append(Interaction(Role.parse(message.role), _contents(message, param)))
    return turns


def _said(message: OllamaMessage, index: int) -> Interaction:
    calls = tuple(
        ToolCall(call.id or f"call_{index}_{number}", call.function.name, call.function.text)
        for number, call in enumerate(message.tool_calls or ())
    )
    fields = {"tool_calls": calls, "reasoning_content": message.thinking}
    metadata = {name: value for name, value in fields.items() if value}
    return Interaction(Role.ASSISTANT, (Content.of(message.content or ""),), MappingProxyType(metadata))


def _answered(message: OllamaMessage, waiting: dict[str, str]) -> str:
    """The id of the call that a result answers; none where there is no such call."""
    if message.tool_call_id in waiting:
        return message.tool_call_id
    fitting = (id_ for id_, name in waiting.items() if not message.tool or name == message.tool)
    return next(fitting, "")


def _contents(message: OllamaMessage, param: str) -> tuple[Content, ...]:
    return (*_images(message.images or (), param), Content.of(message.content or ""))


def _images(images: Sequence[str], param: str) -> Iterator[Content]:
    """The images of a message as contents. In Ollama's API they always come before the text."""
    for place, image in enumerate(images):
        # Of which kind it is its bytes say, whatever the URL does.
        url = image if image.startswith("data:") else f"data:image/png;base64,{image}"
        yield image_content(url, None, f"{param}[{place}]")


def not_honoured(body: OllamaFields, model: ServedModel) -> list[str]:
    """What the client sent and nothing here honours, by name."""
    names = dict.fromkeys(body.unknown)
    if isinstance(body, OllamaGenerate) and (body.raw or body.suffix):
        names |= {"think": None} if body.think else {}
    else:
        names |= dict.fromkeys(make_reasoning(body, model, _name_param).ignored)
    if body.shift:
        names["shift"] = None
    names |= dict.fromkeys(idle_options(body.options.num_ctx, body.keep_alive, model.context_tokens))
    return list(names)


def idle_options(num_ctx: int | None, keep_alive: float | None, context_tokens: int) -> Iterator[str]:
    """More room than there is, and a say in how long a model stays, are not to be had."""
    if num_ctx is not None and num_ctx > context_tokens:
        yield "options.num_ctx"
    if keep_alive is not None and keep_alive >= 0:
        yield "keep_alive"
