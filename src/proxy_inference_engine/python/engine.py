"""`Engine`: a served model in this program, for code that waits. An event loop of its own runs in a thread."""

import asyncio
import inspect
import queue
import threading
import weakref
from collections.abc import AsyncIterable, Callable, Coroutine, Generator, Iterator
from contextlib import closing, suppress
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.watcher import Watcher
from proxy_inference_engine.output.events import Event, TextDelta
from proxy_inference_engine.python.answer import ChatAnswer
from proxy_inference_engine.python.local_model import LocalModel, make_config
from proxy_inference_engine.python.options import ChatOptions, Texts, TurnsLike
from proxy_inference_engine.python.rounds import ChatRounds

T = TypeVar("T")


class LoopThread:
    """An event loop for callers that block. Ctrl-C in the caller ends what it waits for."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pie-loop", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, stream: AsyncIterable[T]) -> Generator[T, None, None]:
        """What comes, in the calling thread. Closing the generator ends the work."""
        news: queue.SimpleQueue[T | BaseException | None] = queue.SimpleQueue()

        async def pump() -> None:
            try:
                async for item in stream:
                    news.put(item)
            except BaseException as error:
                news.put(error)
                raise
            news.put(None)

        future = asyncio.run_coroutine_threadsafe(pump(), self._loop)
        try:
            while (item := news.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            future.cancel()

    def post(self, call: Callable[[], None]) -> None:
        """Call something over there. Where the loop is closed, nothing is left to be called."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def close(self) -> None:
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class ChatStream(Generic[T]):
    """An answer as it comes, read once: iterating gives its text, `events()` everything."""

    def __init__(self, model: LocalModel, loop: LoopThread, rounds: ChatRounds[T]) -> None:
        self._model = model
        self._loop = loop
        self._rounds = rounds

    def __iter__(self) -> Iterator[str]:
        with closing(self.events()) as events:
            for event in events:
                if isinstance(event, TextDelta):
                    yield event.text

    def events(self) -> Generator[Event, None, None]:
        """The events of every round. Closing the generator stops the engine. Raises PieError."""
        while True:
            stream, self._rounds.ignored = self._loop.run(self._model.ask(self._rounds.body()))
            try:
                with closing(self._loop.iterate(stream.steps())) as steps:
                    for step in steps:
                        for _, event in step:
                            self._rounds.feed(event)
                            yield event
            finally:
                self._loop.post(stream.cancel)
            calls = self._rounds.finish(stream)
            if not calls:
                return
            for call in calls:
                result = call.start()  # in the caller's own thread, as if it had called the function itself
                self._rounds.add_result(call, self._awaited(result) if inspect.isawaitable(result) else result)

    def _awaited(self, result: Any) -> Any:
        async def wait() -> Any:
            return await result

        return self._loop.run(wait())

    @property
    def answer(self) -> ChatAnswer[T]:
        """The whole of it, once it was read to its end. Raises IncompleteAnswer."""
        return self._rounds.answer()


def _end(model: LocalModel, loop: LoopThread) -> None:
    model.close()
    loop.close()


class Engine:
    """A model in this process: `with Engine("owner/model", context=4096) as engine`. Any thread may use it.

    Settings are those of the configuration, by name. Nothing is read from the environment or from files.
    """

    def __init__(self, model: str | None = None, *, watcher: Watcher | None = None, **settings: Any) -> None:
        """`model` None: the bundled one. Downloads it if it is missing, and loads it. Raises StartupError."""
        self._begin(LocalModel.load(make_config(model, settings), watcher))

    @classmethod
    def of(cls, config: Config, watcher: Watcher | None = None) -> "Engine":
        """An engine with a configuration that was read elsewhere. Raises StartupError."""
        return cls.over(LocalModel.load(config, watcher))

    @classmethod
    def over(cls, model: LocalModel) -> "Engine":
        """An engine over a model that is loaded already; closing the engine closes it."""
        engine = cls.__new__(cls)
        engine._begin(model)
        return engine

    def _begin(self, model: LocalModel) -> None:
        self._model: LocalModel | None = model
        self._loop = LoopThread()
        # A program that ends, or forgets the engine, without closing it.
        self._ending = weakref.finalize(self, _end, model, self._loop)

    def close(self) -> None:
        """Ends what runs. Harmless when it is closed."""
        self._model = None
        self._ending()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
            raise StartupError("this engine is closed")
        return self._model

    @overload
    def chat(
        self, messages: TurnsLike, *, response_format: type[T], **options: Unpack[ChatOptions]
    ) -> ChatAnswer[T]: ...

    @overload
    def chat(
        self, messages: TurnsLike, *, response_format: Any = None, **options: Unpack[ChatOptions]
    ) -> ChatAnswer[Any]: ...

    def chat(
        self, messages: TurnsLike, *, response_format: Any = None, **options: Unpack[ChatOptions]
    ) -> ChatAnswer[Any]:
        """The whole answer. Raises PieError."""
        stream = self.stream(messages, response_format=response_format, **options)
        for _ in stream.events():
            pass
        return stream.answer

    @overload
    def stream(
        self, messages: TurnsLike, *, response_format: type[T], **options: Unpack[ChatOptions]
    ) -> ChatStream[T]: ...

    @overload
    def stream(
        self, messages: TurnsLike, *, response_format: Any = None, **options: Unpack[ChatOptions]
    ) -> ChatStream[Any]: ...

    def stream(
        self, messages: TurnsLike, *, response_format: Any = None, **options: Unpack[ChatOptions]
    ) -> ChatStream[Any]:
        """The answer as it comes; nothing is asked before it is read."""
        return ChatStream(self._loaded, self._loop, ChatRounds(messages, response_format, options))

    @overload
    def embed(self, texts: str, *, dimensions: int | None = None) -> list[float]: ...

    @overload
    def embed(self, texts: Texts, *, dimensions: int | None = None) -> list[list[float]]: ...

    def embed(self, texts: str | Texts, *, dimensions: int | None = None) -> list[float] | list[list[float]]:
        """A vector of length one for a text, or one for each of several. Raises PieError."""
        model = self._loaded
        if isinstance(texts, str):
            (vector,) = self._loop.run(model.embed([texts], dimensions))
            return vector
        return self._loop.run(model.embed(texts, dimensions)) if texts else []
