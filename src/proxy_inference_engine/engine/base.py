"""What the rest of the program sees of an engine: submit a Request, iterate over what comes out."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from proxy_inference_engine.cache.view import CacheView
from proxy_inference_engine.engine.stats import Stats as Stats
from proxy_inference_engine.runners.base import EmbeddingInfo, ImageEncoder, ModelInfo, Tokenizer, Vector
from proxy_inference_engine.types import Output, Request


class Item(NamedTuple):
    """One output of one choice."""

    choice: int
    output: Output


class Place(NamedTuple):
    """Where a request stands in the line, about: others go before it or after it, and tenants take turns."""

    position: int  # 1: it is next; 0: there is room for it
    wait_s: float | None = None  # None: too little is known


class AnswererStream(Protocol):
    """The outputs of one request, every choice's in its own order. Leaving the iteration is not enough: `cancel`."""

    def __aiter__(self) -> AsyncIterator[list[Item]]:
        """Yields what each step brought; ends when every choice is finished or cancelled, or at the first Failed."""
        ...

    def place(self) -> Place | None:
        """While nothing came of it; None: it does not wait, or nobody knows."""
        ...

    def cancel(self, choice: int | None = None) -> None:
        """Stop one choice, or all, and free everything within one step. Harmless when already over."""
        ...


class Answerer(Protocol):
    """One loaded model that answers requests."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def image_encoder(self) -> ImageEncoder | None:
        """None: the model takes no images."""
        ...

    @property
    def context_tokens(self) -> int:
        """Most tokens, prompt and answer together, one sequence may have here."""
        ...

    @property
    def can_draft(self) -> bool:
        """Whether a request's own guess of the answer is used; if not, it changes nothing."""
        ...

    @property
    def walks_grammars(self) -> bool:
        """Whether every token is chosen under a request's matcher; if not, only its grammar binds."""
        ...

    def check(self, request: Request) -> None:
        """Refuse what this engine cannot do of what it is asked. Raises InvalidRequest that names it."""
        ...

    def submit(self, request: Request) -> AnswererStream:
        """Queue a request; call from the event loop. Raises QueueFull or Unavailable.

        What can never fit was refused at the edge; if it comes here all the same, its stream ends in a
        ContextLengthExceeded.
        """
        ...

    @property
    def embedding(self) -> EmbeddingInfo: ...

    async def embed(self, texts: Sequence[Sequence[int]], tenant: str, priority: int = 0) -> list[Vector]:
        """One vector a text, as the model made it; call from the event loop, and cancel the call to stop the work.

        Raises QueueFull, Unavailable or EngineFailure.
        """
        ...

    def stats(self) -> Stats:
        """What was measured so far, as a copy; call from any thread."""
        ...

    def stop(self) -> None:
        """End what still runs with an error, and free everything; call off the event loop."""
        ...

    @property
    def is_ready(self) -> bool:
        """False when the engine thread is gone, stuck or draining."""
        ...


@runtime_checkable
class ShowsCache(Protocol):
    """An answerer with a prefix cache in this process."""

    async def show_cache(self, max_nodes: int) -> CacheView:
        """What the cache holds, the most recently used first; call from the event loop. Raises Unavailable."""
        ...
