"""Messages in Anthropic's format as turns of a conversation."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction import Content, Interaction, Role, ToolCall
from proxy_inference_engine.server.convert.image_content import image_content
from proxy_inference_engine.server.jsons import dumps
from proxy_inference_engine.server.schemas.anthropic import (
    Block,
    CountRequest,
    ImageBlock,
    Message,
    Results,
    TextBlock,
    Texts,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)

_INPUT_CHARS = 4096  # what a call's input counts for: writing it out to know would be the work itself
# Claude Code's first system block has a line that changes with every request: no prefix after it would be found again.
_BILLING = re.compile(r"^x-anthropic-billing-header\b[^\n]*\n*", re.ASCII | re.IGNORECASE | re.MULTILINE)


def conversation(body: CountRequest) -> list[Interaction]:
    """Raises InvalidRequest for a result without its call."""
    turns = [] if body.system is None else _system(body.system)
    names: dict[str, str] = {}  # id of every call so far → name of its tool
    has_begun = False
    for index, message in enumerate(body.messages):
        match message.role:
            case "system":
                turns.append(_instruction(message, has_begun))
            case "assistant":
                turns.append(_said(message))
            case "user":
                turns += _asked(message, index, names)
        names |= {block.id: block.name for block in message.blocks if isinstance(block, ToolUseBlock)}
        has_begun = has_begun or message.role != "system"
    # An answer that is to be continued and has no beginning yet is to be written.
    return turns[:-1] if len(turns) > 1 and _is_empty(turns[-1]) else turns


def _is_empty(turn: Interaction) -> bool:
    return turn.role is Role.ASSISTANT and not turn.metadata and not turn.text.strip()


def _system(system: Texts) -> list[Interaction]:
    first, *others = _texts(system) or [""]
    texts = [_BILLING.sub("", first), *others]
    return [_turn(Role.SYSTEM, [text for text in texts if text])] if any(texts) else []


def _instruction(message: Message, has_begun: bool) -> Interaction:
    """Chat templates know instructions at the front only; moved there, a late one would change the whole prefix."""
    texts = _texts_of(message)
    if not has_begun:
        return _turn(Role.SYSTEM, texts)
    return _turn(Role.USER, ["<system-reminder>", *texts, "</system-reminder>"])


def _said(message: Message) -> Interaction:
    blocks = message.blocks
    calls = tuple(
        ToolCall(block.id, block.name, dumps(block.input)) for block in blocks if isinstance(block, ToolUseBlock)
    )
    thoughts = "\n\n".join(block.thinking for block in blocks if isinstance(block, ThinkingBlock) and block.thinking)
    fields = {"tool_calls": calls, "reasoning_content": thoughts}
    return _turn(Role.ASSISTANT, _texts_of(message), {name: value for name, value in fields.items() if value})


def _asked(message: Message, index: int, names: Mapping[str, str]) -> Iterator[Interaction]:
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
        Content.of(block.text)
        if isinstance(block, TextBlock)
        else image_content(block.source.address, None, f"{param}.content[{place}]")
        for place, block in enumerate(blocks)
        if isinstance(block, TextBlock | ImageBlock)
    )


def _texts(content: Texts | Results) -> list[str]:
    return [content] if isinstance(content, str) else [block.text for block in content if isinstance(block, TextBlock)]


def _texts_of(message: Message) -> list[str]:
    return [block.text for block in message.blocks if isinstance(block, TextBlock)]


def _turn(role: Role, texts: list[str], metadata: Mapping[str, object] | None = None) -> Interaction:
    return Interaction(role, tuple(map(Content.of, texts)), MappingProxyType(dict(metadata or {})))


def num_chars(body: CountRequest) -> int:
    system = 0 if body.system is None else sum(map(len, _texts(body.system)))
    return system + sum(_block_chars(block) for message in body.messages for block in message.blocks)


def _block_chars(block: Block) -> int:
    match block:
        case TextBlock():
            return len(block.text)
        case ThinkingBlock():
            return len(block.thinking)
        case ToolUseBlock():
            return _INPUT_CHARS
        case ToolResultBlock():
            return 0 if block.content is None else sum(map(len, _texts(block.content)))
        case _:
            return 0
