"""What a parser has to expect of one request's output. Made by the state machine, read by `output/`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy_inference_engine.formats.syntax import CallSyntax, Channels, Thinking
from proxy_inference_engine.interaction import Tool


@dataclass(frozen=True, slots=True)
class Labels:
    """Nothing set: all output is content."""

    thinking: Thinking | None = None
    starts_in_reasoning: bool = False  # the prompt has opened the block already
    calls: CallSyntax | None = None  # None: whatever looks like a call is text
    is_call_at_start: bool = False  # a call opens at the start of the answer, or in the reasoning, or not at all
    channels: Channels | None = None
    tools: Mapping[str, Tool] = field(default_factory=dict)
    tokens: Mapping[int, str] = field(default_factory=dict)  # id → text of the family's markers that are tokens here
    is_bound: bool = True  # a grammar held the calls to their syntax; if not, they are read tolerantly

    @property
    def is_plain(self) -> bool:
        return self.thinking is None and self.calls is None and self.channels is None
