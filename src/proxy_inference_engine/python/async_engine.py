"""`AsyncEngine`: a served model in this program, for code that runs in an event loop."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.watcher import Watcher
from proxy_inference_engine.output.events import Event, TextDelta
from proxy_inference_engine.python.answer import ChatAnswer
from proxy_inference_engine.python.local_model import LocalModel, make_config
from proxy_inference_engine.python.options import ChatOptions, Texts, TurnsLike
from proxy_inference_engine.python.rounds import ChatRounds

T = TypeVar("T")


class AsyncChatStream(Generic[T]):
    """An answer as it comes, read once: `async for` gives its text, `events()` everything."""

    def __init__(self, model: LocalModel, rounds: ChatRounds[T]) -> None:
        self._model = model
        self._rounds = rounds

    async def __aiter__(self) -> AsyncIterator[str]:
        async with aclosing(self.events()) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    yield event.text

    async def events(self) -> AsyncGenerator[Event, None]:
        """The events of every round. Closing the generator stops the engine. Raises PieError."""
        while True:
            stream, self._rounds.ignored = await self._model.ask(self._rounds.body())
            try:
                async with aclosing(stream.steps()) as steps:
                    async for step in steps:
                        for _, event in step:
                            self._rounds.feed(event)
                            yield event
            finally:
                stream.cancel()
            calls = self._rounds.finish(stream)
            if not calls:
                return
            for call in calls:
                result = call.start()
                self._rounds.add_result(call, await result if inspect.isawaitable(result) else result)

    @property
    def answer(self) -> ChatAnswer[T]:
        """The whole of it, once it was read to its end. Raises IncompleteAnswer."""
        return self._rounds.answer()


class AsyncEngine:
    """A model in this process: `async with AsyncEngine("owner/model", context=4096) as engine`.

    Settings are those of the configuration, by name. Nothing is read from the environment or from files.
    """

    def __init__(self, model: str | None = None, *, watcher: Watcher | None = None, **settings: Any) -> None:
        """`model` None: the bundled one. Nothing is loaded yet. Raises StartupError."""
        self._config = make_config(model, settings)
        self._watcher = watcher
        self._model: LocalModel | None = None

    @classmethod
    def over(cls, model: LocalModel) -> "AsyncEngine":
        """Over a model that is loaded already; closing the engine closes it."""
        engine = cls()
        engine._model = model
        return engine

    async def load(self) -> None:
        """Raises StartupError. Harmless when it is loaded."""
        if self._model is None:
            self._model = await asyncio.to_thread(LocalModel.load, self._config, self._watcher)

    async def close(self) -> None:
        """Ends what runs. Harmless when it is closed."""
        model, self._model = self._model, None
        if model is not None:
            await asyncio.to_thread(model.close)

    async def __aenter__(self) -> Self:
        await self.load()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def name(self) -> str:
        """The model's."""
        return self._loaded.served.id

    @property
    def context_tokens(self) -> int:
        return self._loaded.served.context_tokens

    @property
    def _loaded(self) -> LocalModel:
        if self._model is None:
            raise StartupError("this engine has no model: load() it, or use it in `async with`")
        return self._model

    @overload
    async def chat(
        self, messages: TurnsLike, *, response_format: type[T], **options: Unpack[ChatOptions]
    ) -> ChatAnswer[T]: ...

    @overload
    async def chat(
        self, messages: TurnsLike, *, response_format: Any = None, **options: Unpack[ChatOptions]
    ) -> ChatAnswer[Any]: ...

    async def chat(
        self, messages: TurnsLike, *, response_format: Any = None, **options: Unpack[ChatOptions]
    ) -> ChatAnswer[Any]:
        """The whole answer. Raises PieError."""
        stream = self.stream(messages, response_format=response_format, **options)
        async for _ in stream.events():
            pass
        return stream.answer

    @overload
    def stream(
        self, messages: TurnsLike, *, response_format: type[T], **options: Unpack[ChatOptions]
    ) -> AsyncChatStream[T]: ...

    @overload
    def stream(
        self, messages: TurnsLike, *, response_format: Any = None, **options: Unpack[ChatOptions]
    ) -> AsyncChatStream[Any]: ...

    def stream(
        self, messages: TurnsLike, *, response_format: Any = None, **options: Unpack[ChatOptions]
    ) -> AsyncChatStream[Any]:
        """The answer as it comes; nothing is asked before it is read."""
        return AsyncChatStream(self._loaded, ChatRounds(messages, response_format, options))

    @overload
    async def embed(self, texts: str, *, dimensions: int | None = None) -> list[float]: ...

    @overload
    async def embed(self, texts: Texts, *, dimensions: int | None = None) -> list[list[float]]: ...

    async def embed(self, texts: str | Texts, *, dimensions: int | None = None) -> list[float] | list[list[float]]:
        """A vector of length one for a text, or one for each of several. Raises PieError."""
        if isinstance(texts, str):
            (vector,) = await self._loaded.embed([texts], dimensions)
            return vector
        return await self._loaded.embed(texts, dimensions) if texts else []
