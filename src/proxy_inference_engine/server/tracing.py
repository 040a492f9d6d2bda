"""What a request tells whoever follows it: how long it was where. Off by default, and then no request has a trace.

Nothing of OpenTelemetry is here: `spans.py` has it, and is imported where traces are wanted.
"""

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Protocol

from proxy_inference_engine.served.stream import Observer
from proxy_inference_engine.types import Request

Headers = Iterable[tuple[bytes, bytes]]


class AnswerTrace(Observer, Protocol):
    """Measures an answer as the observer behind it does, and at its end notes where its time went."""

    def begin(self, requests: Sequence[Request], *, is_chat: bool) -> None:
        """The engine has it now."""
        ...


class Trace(Protocol):
    """One request, from its head to its last byte. What it started may go on after that, and still belongs to it."""

    def watch(self, observer: Observer, model: str) -> AnswerTrace:
        """A model is asked now, and measured by the observer."""
        ...

    def took(self, name: str, began: float, model: str = "", num_tokens: int = 0) -> None:
        """Something was waited for, from a moment of the monotonic clock until now."""
        ...

    def turn(self) -> "Trace":
        """A part of it that is a request of its own: a turn on a socket."""
        ...

    def end(self, method: str, route: str, status: int, code: str | None, tenant: str) -> None: ...


class Tracing(Protocol):
    def begin(self, headers: Headers) -> Trace:
        """A request has come. Where its headers name a trace of the client's, it becomes a part of that."""
        ...

    def close(self) -> None:
        """Send what was not sent yet."""
        ...


CURRENT: ContextVar[Trace | None] = ContextVar("trace", default=None)


def note_save(began: float) -> None:
    """Something was stored, for whichever request is being answered here."""
    trace = CURRENT.get()
    if trace is not None:
        trace.took("store", began)
