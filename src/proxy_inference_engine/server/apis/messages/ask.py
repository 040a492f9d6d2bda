"""A body in Anthropic's format as what is asked of the model, and what of it is not honoured."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from proxy_inference_engine.errors import InvalidRequest, shorten
from proxy_inference_engine.interaction import Content, Interaction, Role, Tool, ToolCall
from proxy_inference_engine.served.ask import Ask, ChatPrompt, LimitWishes, SamplingWishes, Turns
from proxy_inference_engine.served.images import image_content
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.served.overrides import SWITCH
from proxy_inference_engine.server.apis.messages.notes import NotedBlock
from proxy_inference_engine.server.apis.messages.schema import (
    Block,
    ClientTool,
    CountRequest,
    ImageBlock,
    InputMessage,
    MessageRequest,
    Results,
    ServerTool,
    TextBlock,
    TextBlocks,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from proxy_inference_engine.server.apis.shared.fields import CacheControl, pin_seconds
from proxy_inference_engine.server.apis.shared.reasoning import ReasoningWishes
from proxy_inference_engine.server.apis.shared.sealer import Sealer, Unopenable
from proxy_inference_engine.server.http.wire import dumps, new_id
from proxy_inference_engine.state_machine.demand import AnyText, Demand, InvalidDemand, JsonSchema, ToolChoice

_EFFORT = "reasoning_effort"  # a variable of chat templates
# Claude Code's first system block has a line that changes with every request: no prefix after it would be found again.
_BILLING = re.compile(r"^x-anthropic-billing-header\b[^\n]*\n*", re.ASCII | re.IGNORECASE | re.MULTILINE)


def make_ask(body: CountRequest, model: ServedModel, tenant: str, sealer: Sealer | None = None) -> Ask:
    """`sealer` opens thoughts that the client was not shown; without one they are lost."""
    _check_thread(body)
    turns = make_turns(body, sealer)
    continues = _continues(turns)
    reasoning = make_reasoning(body, model)
    demand = make_demand(body, reasoning)
    return Ask(
        id=new_id("msg_"),
        tenant=tenant,
        prompt=ChatPrompt(turns, reasoning.variables, add_generation_prompt=not continues, continue_final=continues),
        sampling=_sampling(body),
        limits=_limits(body),
        # Who has begun to answer does not go back to thinking.
        demand=replace(demand, can_reason=False, max_reasoning_tokens=None) if continues else demand,
        pin_seconds=pin_seconds(_marks(body)),
        name_demand=DemandNames(body),
    )


def _check_thread(body: CountRequest) -> None:
    """Refuse a thread. Anthropic's clients send the whole conversation once they are told so in these words."""
    if body.thread is not None:
        error = InvalidRequest("Threads are not kept here: send the whole conversation.", param="thread")
        error.details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
        raise error


def _marks(body: CountRequest) -> Iterator[CacheControl]:
    """What says that the prompt is to be kept."""
    yield body.cache_control
    if isinstance(body, MessageRequest) and body.is_prewarming:
        yield {"ttl": "5m"}
    yield from (tool.cache_control for tool in body.tools if isinstance(tool, ClientTool))
    for content in (body.system, *(message.content for message in body.messages)):
        yield from (getattr(block, "cache_control", None) for block in content or () if not isinstance(block, str))


def _continues(turns: Turns) -> bool:
    """Whether the answer goes on with the last message: in this format it does where that is the assistant's."""
    last = turns[-1]
    if last.role is not Role.ASSISTANT:
        return False
    if last.calls:
        raise InvalidRequest("The last message has calls: send their results after it.", param="messages")
    return bool(last.text.strip())


def _sampling(body: CountRequest) -> SamplingWishes:
    if not isinstance(body, MessageRequest):
        return SamplingWishes()
    return SamplingWishes(temperature=body.temperature, top_p=body.top_p, top_k=body.top_k)


def _limits(body: CountRequest) -> LimitWishes:
    if not isinstance(body, MessageRequest):
        return LimitWishes()
    return LimitWishes(0 if body.is_prewarming else body.max_tokens, stop=body.stop_sequences or ())


def make_tools(body: CountRequest) -> tuple[Tool, ...]:
    """The tools that the client runs itself; others are skipped, and named among what is ignored."""
    made: dict[str, Tool] = {}
    for index, tool in _offered(body):
        if tool.name in made:
            raise InvalidRequest(f"Two tools have the name {tool.name!r}.", param=f"tools[{index}].name")
        made[tool.name] = Tool(tool.name, tool.description or "", tool.input_schema, is_strict=bool(tool.strict))
    return tuple(made.values())


def _offered(body: CountRequest) -> list[tuple[int, ClientTool]]:
    """Tools with their places; those that are to be searched for once a result refers to them, or they were called."""
    tools = [(index, tool) for index, tool in enumerate(body.tools) if isinstance(tool, ClientTool)]
    if not tools:
        return []
    told = dict(_told_of(body))
    return [(index, tool) for index, tool in tools if told.get(tool.name, not tool.defer_loading)]


def _told_of(body: CountRequest) -> Iterator[tuple[str, bool]]:
    """Names of tools, and whether they may be called from there on."""
    for block in (block for message in body.messages for block in message.blocks):
        if isinstance(block, ToolUseBlock):
            yield block.name, True
        inner = block.content if isinstance(block, ToolResultBlock) else [block]
        for each in inner or ():
            if isinstance(each, NotedBlock) and each.tool_name is not None:
                yield each.tool_name, each.type != "tool_removal"


def make_demand(body: CountRequest, reasoning: ReasoningWishes) -> Demand:
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
        closes_objects=not body.open_objects,
        any_order=body.open_objects,
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


class DemandNames:
    """Names the parameter that a refused demand is about: the demand has fewer tools than the body."""

    def __init__(self, body: CountRequest) -> None:
        self._indexes = [index for index, _ in _offered(body)]

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


def make_reasoning(body: CountRequest, model: ServedModel) -> ReasoningWishes:
    """Off unless asked for, as in this format.

    A model that has no switch is left to think, in blocks of its own, unless it is told not to and can be kept from it.
    """
    readable = model.renderer.variables
    variables: dict[str, object] = {}
    effort = None if body.output_config is None else body.output_config.effort
    if effort is not None and _EFFORT in readable:
        variables[_EFFORT] = effort
    is_asked = _asks_to_think(body)
    if SWITCH in readable:
        variables[SWITCH] = is_asked
    can_stop = SWITCH in readable or not model.can_reason or (body.thinking is not None and model.can_silence)
    budget = body.thinking.budget_tokens if is_asked and body.thinking is not None else None
    return ReasoningWishes(variables, is_wanted=is_asked or not can_stop, max_tokens=budget)


def _asks_to_think(body: CountRequest) -> bool:
    return body.thinking is not None and body.thinking.type in ("enabled", "adaptive")


def not_honoured(body: CountRequest, model: ServedModel) -> list[str]:
    """What the client sent and nothing here honours, by name."""
    readable = model.renderer.variables
    names = dict.fromkeys(body.unknown)
    names |= dict.fromkeys(f"tools.{shorten(tool.type)}" for tool in body.tools if isinstance(tool, ServerTool))
    names |= dict.fromkeys(_unread(body))
    cannot_stop = model.can_reason and not model.can_silence
    if body.thinking is not None and (not model.can_reason if _asks_to_think(body) else cannot_stop):
        names["thinking"] = None
    if body.output_config is not None and body.output_config.effort is not None and _EFFORT not in readable:
        names["output_config.effort"] = None
    return list(names)


def _unread(body: CountRequest) -> Iterator[str]:
    """Blocks of which the model was only told."""
    for block in (block for message in body.messages for block in message.blocks):
        if isinstance(block, NotedBlock) and not block.is_read:
            yield f"messages.{block.type}"
        elif isinstance(block, ToolResultBlock) and isinstance(block.content, list):
            inner = (each for each in block.content if isinstance(each, NotedBlock) and not each.is_read)
            yield from (f"messages.tool_result.{each.type}" for each in inner)


def make_turns(body: CountRequest, sealer: Sealer | None = None) -> list[Interaction]:
    """Raises InvalidRequest for a result without its call, and where there is nothing to answer."""
    turns = [] if body.system is None else _system(body.system)
    names: dict[str, str] = {}  # id of every call so far → name of its tool
    has_begun = False
    for index, message in enumerate(body.messages):
        match message.role:
            case "system":
                turns += _instruction(message, has_begun)
            case "assistant":
                turns.append(_said(message, sealer))
            case "user":
                turns += _asked(message, index, names)
        names |= {block.id: block.name for block in message.blocks if isinstance(block, ToolUseBlock)}
        has_begun = has_begun or message.role != "system"
    if not turns:
        raise InvalidRequest("No message says anything to a model.", param="messages")
    # An answer that is to be continued and has no beginning yet is to be written.
    return turns[:-1] if len(turns) > 1 and _is_empty(turns[-1]) else turns


def _is_empty(turn: Interaction) -> bool:
    return turn.role is Role.ASSISTANT and not turn.metadata and not turn.text.strip()


def _system(system: TextBlocks) -> list[Interaction]:
    first, *others = _texts(system) or [""]
    texts = [_BILLING.sub("", first), *others]
    return [_turn(Role.SYSTEM, [text for text in texts if text])] if any(texts) else []


def _instruction(message: InputMessage, has_begun: bool) -> list[Interaction]:
    """Chat templates know instructions at the front only; moved there, a late one would change the whole prefix."""
    texts = _texts_of(message)
    if not texts:
        return []
    if not has_begun:
        return [_turn(Role.SYSTEM, texts)]
    return [_turn(Role.USER, ["<system-reminder>", *texts, "</system-reminder>"])]


def _said(message: InputMessage, sealer: Sealer | None) -> Interaction:
    blocks = message.blocks
    calls = tuple(
        ToolCall(block.id, block.name, dumps(block.input)) for block in blocks if isinstance(block, ToolUseBlock)
    )
    thoughts = (_thought(block, sealer) for block in blocks if isinstance(block, ThinkingBlock))
    fields = {"tool_calls": calls, "reasoning_content": "\n\n".join(filter(None, thoughts))}
    return _turn(Role.ASSISTANT, _texts_of(message), {name: value for name, value in fields.items() if value})


def _thought(block: ThinkingBlock, sealer: Sealer | None) -> str:
    """What was not shown is in the signature, if that is ours."""
    if block.thinking or not block.signature or sealer is None:
        return block.thinking
    try:
        return str(sealer.open("reasoning", block.signature))
    except Unopenable:
        return ""


def _asked(message: InputMessage, index: int, names: Mapping[str, str]) -> Iterator[Interaction]:
    """Results first: they answer the calls right before this message."""
    for place, block in enumerate(message.blocks):
        if isinstance(block, ToolResultBlock):
            if block.tool_use_id not in names:
                raise InvalidRequest(
                    "'tool_use_id' has to be the id of a tool_use block in an earlier message.",
                    param=f"messages[{index}].content[{place}].tool_use_id",
                )
            yield _result(block, names[block.tool_use_id], f"messages[{index}].content[{place}]")
    contents = _contents(message.blocks, f"messages[{index}]")
    if contents:
        yield Interaction(Role.USER, contents)


def _result(block: ToolResultBlock, name: str, param: str) -> Interaction:
    blocks = block.content or []
    contents = (Content.of(blocks),) if isinstance(blocks, str) else _contents(blocks, param)
    # No chat template has a place for it.
    contents = (Content.of("Error:"), *contents) if block.is_error else contents
    metadata = MappingProxyType({"tool_call_id": block.tool_use_id, "name": name})
    return Interaction(Role.TOOL, contents, metadata)


def _contents(blocks: Sequence[Block], param: str) -> tuple[Content, ...]:
    """Texts and images in their order."""
    return tuple(
        image_content(block.source.address, None, f"{param}.content[{place}]")
        if isinstance(block, ImageBlock)
        else Content.of(block.text)
        for place, block in enumerate(blocks)
        if isinstance(block, TextBlock | ImageBlock) or (isinstance(block, NotedBlock) and not block.is_silent)
    )


def _texts(content: TextBlocks | Results) -> list[str]:
    return [content] if isinstance(content, str) else [block.text for block in content if isinstance(block, TextBlock)]


def _texts_of(message: InputMessage) -> list[str]:
    return [
        block.text
        for block in message.blocks
        if isinstance(block, TextBlock) or (isinstance(block, NotedBlock) and not block.is_silent)
    ]


def _turn(role: Role, texts: list[str], metadata: Mapping[str, object] | None = None) -> Interaction:
    return Interaction(role, tuple(map(Content.of, texts)), MappingProxyType(dict(metadata or {})))
