"""Items of the Responses API as interactions: what the model itself said in one go is one turn again."""

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn, assert_never

from pydantic import TypeAdapter

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction import Content, Interaction, Role, ToolCall, ToolKind
from proxy_inference_engine.served.images import image_content
from proxy_inference_engine.server.apis.responses.items import (
    AdditionalToolsItem,
    AnyItem,
    CompactionItem,
    CustomCallItem,
    FoundToolsItem,
    FunctionCallItem,
    HostedItem,
    ItemField,
    MessageItem,
    OutputItem,
    ReasoningItem,
    ReferenceItem,
    ToolSearchItem,
    parts_of,
    texts_of,
)
from proxy_inference_engine.server.apis.responses.offer import SEARCH, offered_tools, qualified
from proxy_inference_engine.server.apis.shared.sealer import Sealer, Unopenable

_SUMMARY = "What was said before, in short:\n\n"
_stored: TypeAdapter[AnyItem] = TypeAdapter(ItemField)


def stored_item(value: dict[str, Any]) -> AnyItem:
    """An item that this server wrote down."""
    return _stored.validate_python(value)


@dataclass(slots=True)
class _Turn:
    """What the assistant says, while it is being gathered."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)

    @property
    def has_spoken(self) -> bool:
        return bool(self.texts or self.calls)

    def made(self) -> Interaction:
        fields = {"tool_calls": tuple(self.calls), "reasoning_content": "\n\n".join(self.thoughts)}
        metadata = {name: value for name, value in fields.items() if value}
        return Interaction(Role.ASSISTANT, tuple(map(Content.of, self.texts)), MappingProxyType(metadata))


class ItemTurns:
    """Takes items in order. `num_earlier` of them come from this server's store: errors count from there on."""

    def __init__(self, sealer: Sealer, num_earlier: int = 0) -> None:
        self._sealer = sealer
        self._number = -1 - num_earlier
        self._turns: list[Interaction] = []
        self._current: _Turn | None = None
        self._names: dict[str, str] = {}  # of the calls so far, by id

    def add(self, item: AnyItem) -> None:
        self._number += 1
        match item:
            case MessageItem():
                self._message(item)
            case FunctionCallItem() | CustomCallItem():
                self._call(item)
            case ToolSearchItem():
                self._search(item)
            case FoundToolsItem():
                self._found(item)
            case AdditionalToolsItem():
                pass  # offered with the others
            case OutputItem():
                self._output(item)
            case ReasoningItem():
                self._reasoning(item)
            case CompactionItem():
                self._compaction(item)
            case HostedItem():
                pass
            case ReferenceItem():
                self._refuse(f"there is no item {item.id!r} to refer to", "id")
            case _:
                assert_never(item)

    def finish(self) -> list[Interaction]:
        self._flush()
        return self._turns

    def _message(self, item: MessageItem) -> None:
        if item.role == "assistant":
            if self._current is not None and self._current.has_spoken:
                self._flush()
            self._speaking.texts.extend(texts_of(item.content))
            return
        self._flush()
        self._turns.append(Interaction(Role.parse(item.role), self._contents(item.content, "content")))

    def _contents(self, content: Any, name: str) -> tuple[Content, ...]:
        return tuple(
            Content.of(part)
            if isinstance(part, str)
            else image_content(part.image_url, part.detail, self._param(f"{name}[{place}]"))
            for place, part in enumerate(parts_of(content))
        )

    def _call(self, item: FunctionCallItem | CustomCallItem) -> None:
        kind = ToolKind.CUSTOM if isinstance(item, CustomCallItem) else ToolKind.FUNCTION
        name = qualified(item.name, item.namespace)
        self._speaking.calls.append(ToolCall(item.call_id, name, item.input, kind))
        self._names[item.call_id] = name

    def _search(self, item: ToolSearchItem) -> None:
        if item.call_id is not None and item.execution != "server":
            self._speaking.calls.append(ToolCall(item.call_id, SEARCH, item.input))
            self._names[item.call_id] = SEARCH

    def _found(self, item: FoundToolsItem) -> None:
        """The tools are offered with the others; the model is told which came."""
        if item.call_id not in self._names:
            return
        self._flush()
        names = ", ".join(tool.name for tool in offered_tools(item.tools).tools)
        text = f"These tools can be called now: {names}" if names else "No tools were found."
        metadata = MappingProxyType({"tool_call_id": item.call_id, "name": SEARCH})
        self._turns.append(Interaction(Role.TOOL, (Content.of(text),), metadata))

    def _output(self, item: OutputItem) -> None:
        if item.call_id not in self._names:
            self._refuse("it has to be the id of a call in an earlier item", "call_id")
        self._flush()
        metadata = MappingProxyType({"tool_call_id": item.call_id, "name": self._names[item.call_id]})
        self._turns.append(Interaction(Role.TOOL, self._contents(item.output, "output"), metadata))

    def _reasoning(self, item: ReasoningItem) -> None:
        if self._current is not None and self._current.has_spoken:
            self._flush()
        if item.encrypted_content is not None:
            text = self._open("reasoning", item.encrypted_content)
        else:
            text = "\n\n".join(part.text for part in item.content or ())
        if text:
            self._speaking.thoughts.append(text)

    def _compaction(self, item: CompactionItem) -> None:
        """A summary, and the items that were kept as they were."""
        self._flush()
        content = self._open("compaction", item.encrypted_content)
        self._turns.append(Interaction.of(Role.USER, _SUMMARY + content["summary"]))
        number, items = self._number, list(map(stored_item, content["items"]))
        self._number = -1 - len(items)
        for kept in items:
            self.add(kept)
        self._number = number

    def _open(self, kind: Any, sealed: str) -> Any:
        try:
            return self._sealer.open(kind, sealed)
        except Unopenable:
            self._refuse("it was not made by this server, or was changed", "encrypted_content")

    @property
    def _speaking(self) -> _Turn:
        if self._current is None:
            self._current = _Turn()
        return self._current

    def _flush(self) -> None:
        if self._current is not None:
            self._turns.append(self._current.made())
            self._current = None

    def _refuse(self, reason: str, name: str) -> NoReturn:
        param = self._param(name)
        raise InvalidRequest(f"Invalid value for {param!r}: {reason}.", param=param)

    def _param(self, name: str) -> str:
        """What this server kept has no place in the body."""
        return "input" if self._number < 0 else f"input[{self._number}].{name}"
