"""What a choice says, as text: the prompt was read, text came, it ended or it broke. Knows no HTTP and no JSON."""

import builtins
from dataclasses import dataclass
from typing import NamedTuple

from proxy_inference_engine.errors import PieError
from proxy_inference_engine.types import FinishReason, Timings


@dataclass(frozen=True, slots=True)
class TopLogprob:
    """One of the likeliest tokens at a position."""

    token: str
    logprob: float
    bytes: builtins.bytes
    token_id: int


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token with its log-probability. `bytes` are its raw bytes; `token` is those, decoded with U+FFFD for halves."""

    token: str
    logprob: float
    bytes: builtins.bytes
    top: tuple[TopLogprob, ...]
    token_id: int
    is_forced: bool | None = None  # by the grammar; None: nobody asked


@dataclass(frozen=True, slots=True)
class PromptRead:
    """The prompt is computed; comes before any text."""

    num_cached_tokens: int
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None


class TextDelta(NamedTuple):  # made for nearly every token: a frozen dataclass takes twice as long to make
    """The next piece of text, with the tokens whose last character it carries."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """The next piece of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A tool is called; calls are numbered from 0 and never overlap."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """The next piece of a call's arguments: all of them make one JSON text, or the input of a custom tool."""

    index: int
    arguments: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The call is complete. A call that the limit cut off gets none."""

    index: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The choice is complete. `num_tokens` counts the end token, but none after the one that completed `stop_str`."""

    reason: FinishReason
    stop_str: str | None
    num_tokens: int
    timings: Timings
    num_reasoning_tokens: int = 0
    num_accepted: int = 0  # tokens of the client's guess that were right, and that were not
    num_rejected: int = 0
    num_cached_tokens: int = 0  # of the prompt, where that is known only in the end
    mean_logprob: float | None = None  # over all generated tokens, seen or not; None: no log-probabilities


@dataclass(frozen=True, slots=True)
class Broken:
    """The choice failed; nothing follows."""

    error: PieError


# Per choice: PromptRead, deltas and calls in any order, then exactly one of Ended or Broken (Broken at any time).
Event = PromptRead | TextDelta | ReasoningDelta | CallStarted | CallDelta | CallEnded | Ended | Broken
