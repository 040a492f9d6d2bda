"""What the rest of the program sees of an engine: submit a Request, iterate over what comes out."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from proxy_inference_engine.cache.disk import DiskStats
from proxy_inference_engine.runners.base import EmbeddingInfo, Eyes, ModelInfo, Tokenizer, Vector
from proxy_inference_engine.types import Output, Request


class Item(NamedTuple):
    """One output of one choice."""

    choice: int
    output: Output


class Stream(Protocol):
    """The outputs of one request, every choice's in its own order. Leaving the iteration is not enough: `cancel`."""

    def __aiter__(self) -> AsyncIterator[list[Item]]:
        """Yields what each step brought; ends when every choice is finished or cancelled, or at the first Failed."""
        ...

    def cancel(self, choice: int | None = None) -> None:
        """Stop one choice, or all, and free everything within one step. Harmless when already over."""
        ...


class Stats(NamedTuple):
    """A snapshot for /metrics and /ready; counters only grow."""

    num_running: int
    num_waiting: int
    num_slots: int
    num_cached_tokens: int  # tokens whose KV the prefix cache holds
    cached_bytes: int
    max_cached_bytes: int
    total_prompt_tokens: int
    total_prompt_tokens_cached: int
    total_generated_tokens: int
    total_steps: int
    total_step_seconds: float
    total_forward_seconds: float
    total_preemptions: int
    total_failures: int
    heartbeat_age_s: float  # since the engine thread last went round its loop
    num_embedding: int = 0  # embedding requests that wait or are being computed
    total_embedded_tokens: int = 0
    total_draft_tokens: int = 0  # guessed ahead and computed, and how many of them were right
    total_draft_tokens_accepted: int = 0
    total_model_draft_tokens: int = 0  # the same of those that a draft model guessed
    total_model_draft_tokens_accepted: int = 0
    disk: DiskStats = DiskStats()


class Engine(Protocol):
    """One loaded model that answers requests."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def eyes(self) -> Eyes | None:
        """None: the model takes no images."""
        ...

    @property
    def context_tokens(self) -> int:
        """Most tokens, prompt and answer together, one sequence may have here."""
        ...

    def submit(self, request: Request) -> Stream:
        """Queue a request; call from the event loop. Raises QueueFull, ContextLengthExceeded or Unavailable."""
        ...

    @property
    def embedding(self) -> EmbeddingInfo: ...

    async def embed(self, texts: Sequence[Sequence[int]], tenant: str) -> list[Vector]:
        """One vector a text, as the model made it; call from the event loop, and cancel the call to stop the work.

        Raises QueueFull, Unavailable or EngineFailure.
        """
        ...

    def stats(self) -> Stats: ...

    @property
    def is_ready(self) -> bool:
        """False when the engine thread is gone, stuck or draining."""
        ...
