"""Every family with its markers as tokens and as text: builders, and answers as the family writes them."""

import json
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from proxy_inference_engine.formats import FORMATS, Format, by_name
from proxy_inference_engine.formats.convention import write_calls
from proxy_inference_engine.interaction import Tool, ToolCall
from proxy_inference_engine.state_machine.machine import MachineBuilder
from tests.unit.state_machine.vocabularies import PieceTokenizer

NAMES = tuple(format.name for format in FORMATS)


@dataclass(frozen=True)
class Family:
    name: str
    has_tokens: bool

    def __str__(self) -> str:
        return f"{self.name}-{'tokens' if self.has_tokens else 'text'}"

    @cached_property
    def format(self) -> Format:
        return by_name(self.name)

    @cached_property
    def tokenizer(self) -> PieceTokenizer:
        specials = sorted(self.format.tokens) if self.has_tokens else []
        return PieceTokenizer(pieces=["\n\n", '": ', "</", "call"], specials=specials)

    @property
    def builder(self) -> MachineBuilder:
        return _builder(self.name, self.has_tokens)

    @property
    def can_repeat(self) -> bool:
        return self.format.calls is not None and self.format.calls.can_repeat

    @property
    def can_think(self) -> bool:
        return self.format.thinking is not None or self.format.channels is not None

    def calls(self, *calls: tuple[Tool, dict[str, Any]]) -> str:
        """What the family writes for these calls."""
        if self.format.channels is not None:
            channels = self.format.channels
            ((tool, arguments),) = calls
            head = f"{channels.channel}{channels.call}{tool.name}{channels.call_suffix}{channels.message}"
            return head + json.dumps(arguments)
        assert self.format.calls is not None
        history = [ToolCall("1", tool.name, json.dumps(arguments)) for tool, arguments in calls]
        return write_calls(self.format.calls, history, [tool for tool, _ in calls])

    def text(self, text: str) -> str:
        channels = self.format.channels
        return text if channels is None else f"{channels.channel}{channels.answer}{channels.message}{text}"

    def before(self, text: str, calls: str) -> str:
        """Text to the user, and then calls."""
        channels = self.format.channels
        if channels is None:
            return text + calls
        return f"{channels.channel}{channels.aside}{channels.message}{text}{channels.end}{channels.restart}{calls}"

    def thought(self, thought: str, answer: str, *, gap: str | None = None) -> str:
        """A block of reasoning that the model opened itself, and what follows it."""
        channels, thinking = self.format.channels, self.format.thinking
        if channels is not None:
            head = f"{channels.channel}{channels.reasoning}{channels.message}"
            return f"{head}{thought}{channels.end}{channels.restart}{answer}"
        assert thinking is not None
        return f"{thinking.opening}{thought}{thinking.closing}{thinking.gap if gap is None else gap}{answer}"


FAMILIES = tuple(Family(name, has_tokens) for name in NAMES for has_tokens in (True, False))


@cache
def _builder(name: str, has_tokens: bool) -> MachineBuilder:
    family = Family(name, has_tokens)
    return MachineBuilder(family.format, family.tokenizer, tracks_states=True)
