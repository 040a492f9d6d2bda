"""Whom a terminal talks with: a model in this process, or one on a running server. The rest of the house sees no
difference: the fields of a chat completion go in, events come out, and an end with its counts.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from proxy_inference_engine.output.events import Event
from proxy_inference_engine.python.answer import TokenCounts


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """What there is to say of an answer that is whole."""

    finish_reason: str
    counts: TokenCounts
    ignored: tuple[str, ...] = ()  # of what was asked, what changes nothing for this model


Saying = Event | AnswerEnd


class Partner(Protocol):
    @property
    def name(self) -> str:
        """The model's name."""
        ...

    @property
    def place(self) -> str:
        """Where the model is, in words."""
        ...

    @property
    def context_tokens(self) -> int | None: ...

    def names(self) -> list[str]:
        """The names that `choose` takes, as far as they are known."""
        ...

    def choose(self, name: str) -> None:
        """Talk with another model from now on. Raises PieError, and then stays with this one."""
        ...

    def ask(self, body: Mapping[str, Any]) -> Generator[Saying, None, None]:
        """Events, and one AnswerEnd after them. Closing the generator stops the answer. Raises PieError."""
        ...

    def progress(self) -> str:
        """What the first token waits for, where that can be said."""
        ...

    def close(self) -> None: ...
