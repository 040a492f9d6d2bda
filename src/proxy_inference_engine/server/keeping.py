"""Answers that are stored while they are streamed. Knows no wire format and no database."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Protocol

from proxy_inference_engine.server.generation import Step, Steps

Keep = Callable[[dict[str, Any]], Awaitable[None]]


class Foldable(Protocol):
    """A wire format that gathers the steps that are streamed into one body."""

    @property
    def is_complete(self) -> bool: ...

    def feed(self, step: Step) -> None: ...

    def finish(self) -> dict[str, Any]: ...


class Kept:
    """The same steps, but the last one comes when the folded answer is stored: who sees the end can count on it."""

    def __init__(self, generation: Steps, folded: Foldable, keep: Keep) -> None:
        self._generation = generation
        self._folded = folded
        self._keep = keep

    def cancel(self) -> None:
        self._generation.cancel()

    async def steps(self) -> AsyncGenerator[Step, None]:
        """Raises what `keep` raises, in place of the last step."""
        async with aclosing(self._generation.steps()) as steps:
            async for step in steps:
                self._folded.feed(step)
                if self._folded.is_complete:
                    await self._keep(self._folded.finish())
                yield step
