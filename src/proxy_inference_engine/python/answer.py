"""What a program gets for a chat: the text, what was read out of it, the calls, and how much there was of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from proxy_inference_engine.errors import PieError
from proxy_inference_engine.interaction import ToolCall
from proxy_inference_engine.output.events import TokenLogprob

if TYPE_CHECKING:  # a command that only asks a server does not wait for an engine
    from proxy_inference_engine.served.stream import Counts

T_co = TypeVar("T_co", covariant=True)
FinishWord = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens and milliseconds of an answer, or of all rounds of one in which functions were called."""

    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0  # of the prompt, found in the prefix cache
    num_tokens: int = 0
    num_reasoning_tokens: int = 0
    prompt_ms: float = 0.0
    predicted_ms: float = 0.0

    @classmethod
    def of(cls, counts: "Counts") -> "TokenCounts":
        return cls(
            counts.num_prompt_tokens,
            counts.num_cached_tokens,
            counts.num_tokens,
            counts.num_reasoning_tokens,
            counts.prompt_ms,
            counts.predicted_ms,
        )

    def __add__(self, other: "TokenCounts") -> "TokenCounts":
        return TokenCounts(
            self.num_prompt_tokens + other.num_prompt_tokens,
            self.num_cached_tokens + other.num_cached_tokens,
            self.num_tokens + other.num_tokens,
            self.num_reasoning_tokens + other.num_reasoning_tokens,
            self.prompt_ms + other.prompt_ms,
            self.predicted_ms + other.predicted_ms,
        )

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.predicted_ms * 1000 if self.predicted_ms else 0.0


@dataclass(frozen=True, slots=True)
class ChatAnswer(Generic[T_co]):
    """`str()` of it is its text."""

    text: str
    parsed: T_co  # what `response_format` asked for; None without one, or where tools are called instead
    reasoning: str
    calls: tuple[ToolCall, ...]  # those that no Python function answered
    finish_reason: FinishWord
    counts: TokenCounts
    messages: tuple[dict[str, Any], ...]  # the conversation with this answer at its end: what the next chat begins with
    logprobs: Sequence[TokenLogprob] = ()
    relaxed: tuple[str, ...] = ()  # "path:keyword" of what a schema asks for and could not be enforced
    ignored: tuple[str, ...] = ()  # options that change nothing for this model

    def __str__(self) -> str:
        return self.text


class IncompleteAnswer(PieError):
    """The answer ended before it was what `response_format` asks for. `answer` has what there is of it."""

    def __init__(self, answer: ChatAnswer[None], reason: str) -> None:
        super().__init__(reason)
        self.answer = answer
