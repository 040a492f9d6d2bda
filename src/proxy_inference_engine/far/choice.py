"""One choice of a request at a far engine: one HTTP request, and another one where the first came to nothing.

Before the first token a failure is the engine's, and another engine is asked. After it, what was said cannot be taken
back: the request ends with an error.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from proxy_inference_engine.engine.base import Item
from proxy_inference_engine.errors import EngineFailure, PieError, shorten
from proxy_inference_engine.far.connections import FarConnection
from proxy_inference_engine.far.engines import Engines, FarEngine, prompt_work
from proxy_inference_engine.far.failures import (
    BROKE_OFF,
    as_error,
    has_no_route,
    is_our_own,
    is_passing,
    too_many_connections,
    unavailable,
)
from proxy_inference_engine.far.reasoning import ReasoningWatch
from proxy_inference_engine.far.wire import (
    GENERATE,
    AskedChoice,
    FarChunk,
    FarFailure,
    only_token,
    read_event,
    read_failure,
    read_scored,
)
from proxy_inference_engine.types import (
    Failed,
    Finished,
    FinishReason,
    Logprob,
    Output,
    Prefilled,
    Request,
    Timings,
    Token,
)

_SEPARATOR = b"\n\n"
_DATA = b"data: "
_MAX_FAILURE_BYTES = 1 << 16
_MAX_EVENT_BYTES = 8 << 20
_OK = 200
_NO_ANSWER = (ValueError, KeyError, TypeError, IndexError, AttributeError)  # what is raised by what is none


class FarCounts(Protocol):
    """Whoever counts what all requests of a model bring."""

    total_prompt_tokens: int
    total_prompt_tokens_cached: int
    total_generated_tokens: int
    total_failures: int


class FarChoice:
    """A `FarReader`. `put` takes what comes; it is called with an end exactly once, unless `cancel` came first."""

    def __init__(
        self, request: Request, choice: int, engines: Engines, end_ids: frozenset[int], counted: FarCounts
    ) -> None:
        self._request = request
        self._choice = choice
        self._engines = engines
        self._end_ids = end_ids
        self._counted = counted
        self._loop = asyncio.get_running_loop()
        self._tried: set[FarEngine] = set()
        self._engine: FarEngine | None = None
        self._connection: FarConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._asked: AskedChoice | None = None
        budget = None if request.constraint is None else request.constraint.budget
        self._reasoning = None if budget is None else ReasoningWatch(budget)
        self._takes_one = False  # after the first token: the next ones are handed on as they come
        self._work = 0.0
        self._status = 0
        self._retry_after: str | None = None
        self._rest = b""  # of an event that is not whole yet, or the body of a failure
        self._reason: FinishReason | None = None
        self._num_cached = 0
        self.heard_at = self._loop.time()
        self._began = time.monotonic()
        self._first_at: float | None = None
        self.put: Callable[[list[Item]], None] = lambda _items: None
        self.image_urls: tuple[str, ...] = ()  # of the request's images, before it starts
        self.is_over = False
        self.is_paused = False

    def start(self) -> None:
        """Ask the engine that is best, or the next best. Raises nothing: a failure is put."""
        engine = self._engines.choose(self._request, self._tried)
        if engine is None:
            self._fail(unavailable())
            return
        self._tried.add(engine)
        self._ask(engine)

    def cancel(self) -> None:
        """The far side hears of it by the end of the connection."""
        self._leave()
        self.is_over = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._connecting is not None:
            self._connecting.cancel()

    def pause(self) -> None:
        if not self.is_paused and self._connection is not None:
            self.is_paused = True
            self._connection.pause()

    def resume(self) -> None:
        if self.is_paused:
            self.is_paused = False
            self.heard_at = self._loop.time()
            if self._connection is not None:
                self._connection.resume()

    def give_up(self, reason: str) -> None:
        """Nothing comes any more, though the connection stands."""
        if self._connection is not None:
            self._connection.close()
        self._lose(reason)

    @property
    def has_silent_engine(self) -> bool:
        return self._engine is not None and self._engine.is_silent

    # Asking

    def _ask(self, engine: FarEngine) -> None:
        self._leave()
        self._engine = engine
        self._work = 1.0 if self._first_at is not None else 1.0 + prompt_work(self._request)
        engine.work += self._work
        self._status, self._rest = 0, b""
        model = "" if engine.facts is None else engine.facts.model
        self._asked = AskedChoice(self._request, self._choice, model, self._end_ids, image_urls=self.image_urls)
        if self._reasoning is not None:
            watch = self._reasoning
            self._asked = self._asked._replace(said=tuple(watch.said), num_cuts=watch.num_cuts)
        connection = engine.connections.idle()
        if connection is not None:
            self._send(engine, connection)
        else:
            self._connecting = self._loop.create_task(self._connect(engine))

    async def _connect(self, engine: FarEngine) -> None:
        try:
            connection = await engine.connections.connect()
        except TimeoutError:
            self._lose("no connection in time")
        except OSError as error:
            if is_our_own(error):
                self._fail(too_many_connections())
                return
            engine.eject(str(error))
            self._lose(str(error))
        else:
            self._send(engine, connection)

    def _send(self, engine: FarEngine, connection: FarConnection) -> None:
        assert self._asked is not None
        self._connection, endpoint = connection, engine.endpoint
        engine.connections.post(connection, endpoint, self._asked.body(endpoint), self)

    def _leave(self) -> None:
        """The engine has nothing more to do for this."""
        if self._engine is not None:
            self._engine.work -= self._work
        self._engine, self._work = None, 0.0

    # Reading

    def on_head(self, status: int, retry_after: str | None) -> None:
        self._status, self._retry_after = status, retry_after
        self.heard_at = self._loop.time()

    def on_body(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        if self._takes_one and not self._rest and (token_id := only_token(data)) is not None:
            self._counted.total_generated_tokens += 1
            self.put([Item(self._choice, Token(token_id))])
        else:
            self._read(self._rest + data)

    def _read(self, data: bytes) -> None:
        if self._status != _OK:
            self._rest = data[:_MAX_FAILURE_BYTES]
            return
        if self._request.num_prompt_logprobs is not None:
            self._rest = data
            return
        *events, self._rest = data.split(_SEPARATOR)
        items: list[Item] = []
        try:
            for event in events:
                if event.startswith(_DATA):
                    self._take(event[len(_DATA) :], items)
                if self._reasoning is not None and self._has_to_go_on:
                    self._go_on()
                    break
            if len(self._rest) > _MAX_EVENT_BYTES:
                raise ValueError("an event has no end")
        except FarFailure as failure:
            self._refuse(failure)
        except _NO_ANSWER as error:
            self._break_off(f"it wrote what nobody understands: {type(error).__name__}")
        else:
            if items:
                self.put(items)

    @property
    def _has_to_go_on(self) -> bool:
        """Whether the reasoning has had its tokens, in a request that does not know."""
        if self._reasoning is None or self._asked is None or self._reason is not None:
            return False
        return self._reasoning.num_cuts > self._asked.num_cuts

    def _go_on(self) -> None:
        """Break off, and ask the same engine for the rest."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.is_paused = False  # whoever reads slowly says so again
        assert self._engine is not None
        self._ask(self._engine)

    def on_complete(self) -> None:
        self._connection = None
        if self.is_over:
            return
        if self._status == _OK and self._request.num_prompt_logprobs is not None:
            self._read_scored()
        elif self._status == _OK and self._reason is None:
            self._lose("its answer has no end")
        elif self._status == _OK:
            items: list[Item] = []
            self._finish(items)
            self.put(items)
        else:
            self._refuse(read_failure(self._status, self._rest))

    def on_lost(self, *, is_stale: bool) -> None:
        self._connection = None
        if self.is_over:
            return
        if is_stale and self._engine is not None:
            self._ask(self._engine)  # the engine had closed it, as it does with those that rest
        else:
            self._lose("the connection broke")

    def _read_scored(self) -> None:
        """The answer came as a whole, with the scores of the prompt."""
        items: list[Item] = []
        try:
            chunk, scores = read_scored(self._rest, self._request)
            self._reason = _reason(chunk.reason or "")
        except FarFailure as failure:
            self._refuse(failure)
        except _NO_ANSWER as error:
            self._lose(f"it wrote what nobody understands: {type(error).__name__}")
        else:
            self._num_cached = chunk.num_cached_tokens or 0
            self._begin(items, scores)
            self._take_tokens(chunk, items)
            self._finish(items)
            self.put(items)

    def _take(self, data: bytes, items: list[Item]) -> None:
        if self.is_over:
            return
        chunk = read_event(data, self._request.num_top_logprobs)
        if chunk is None:
            if self._reason is not None:
                self._finish(items)
            return
        if chunk.reason is not None:
            self._reason = _reason(chunk.reason)
        if chunk.ids:
            self._take_tokens(chunk, items)
        if chunk.num_cached_tokens is not None:
            self._num_cached = chunk.num_cached_tokens
        if chunk.num_prompt_tokens is not None and self._asked is not None and self._engine is not None:
            self._engine.compare_counts(len(self._asked.prompt_ids), chunk.num_prompt_tokens)

    def _take_tokens(self, chunk: FarChunk, items: list[Item]) -> None:
        choice = self._choice
        if self._first_at is None:
            self._begin(items)
        if self._request.limits.max_tokens == 0:  # only the prompt was wanted
            return
        num_taken = len(chunk.ids) if self._reasoning is None else self._reasoning.take(chunk.ids)
        if num_taken < len(chunk.ids):  # what follows is not the end, whatever it is
            self._reason = None
        self._counted.total_generated_tokens += num_taken
        last = len(chunk.ids) - 1 if chunk.reason == "stop" else -1
        for place, token_id in enumerate(chunk.ids[:num_taken]):
            logprob = None if chunk.logprobs is None else chunk.logprobs[place]
            is_end = place == last and self._asked is not None and token_id in self._asked.stop_ids
            items.append(Item(choice, Token(token_id, logprob, not is_end)))

    def _begin(self, items: list[Item], scores: tuple[Logprob | None, ...] | None = None) -> None:
        """The first token is there: the prompt is computed."""
        self._first_at = time.monotonic()
        self._counted.total_prompt_tokens += len(self._request.prompt_ids)
        items.append(Item(self._choice, Prefilled(0, scores)))
        is_plain = self._request.num_top_logprobs is None and self._reasoning is None
        self._takes_one = is_plain and self._request.limits.max_tokens > 0
        if self._engine is not None:
            self._engine.succeed()
            self._engine.work -= self._work - 1.0
            self._work = 1.0

    def _finish(self, items: list[Item]) -> None:
        assert self._reason is not None
        now = time.monotonic()
        if self._first_at is None:
            self._begin(items)
        first = self._first_at or now
        self._counted.total_prompt_tokens_cached += self._num_cached
        timings = Timings(0.0, (first - self._began) * 1000, (now - first) * 1000)
        reason: FinishReason = "length" if self._request.limits.max_tokens == 0 else self._reason
        self._end(items, Finished(reason, timings, num_cached_tokens=self._num_cached))

    # Failing

    def _lose(self, reason: str) -> None:
        """The engine failed."""
        if self._engine is not None:
            self._engine.fail(reason)
        self._try_next(EngineFailure(BROKE_OFF))

    def _break_off(self, reason: str) -> None:
        """The connection is of no use any more."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._lose(reason)

    def _try_next(self, error: PieError) -> None:
        self._leave()
        if self._first_at is None:
            self.start()
        else:
            self._fail(error)

    def _refuse(self, failure: FarFailure) -> None:
        """The far side says no."""
        engine = self._engine
        if engine is None or self.is_over:
            return
        if engine.endpoint == GENERATE and engine.facts is not None and has_no_route(failure):
            engine.lacks_endpoint()
            if engine.takes(self._request):
                self._ask(engine)
            else:
                self.start()
        elif is_passing(failure):
            self._break_off(f"status {failure.status}: {shorten(failure.message)}")
        else:
            self._fail(as_error(failure, self._retry_after))

    def _fail(self, error: PieError) -> None:
        self._counted.total_failures += 1
        items: list[Item] = []
        self._end(items, Failed(error))
        self.put(items)

    def _end(self, items: list[Item], output: Output) -> None:
        self._leave()
        self.is_over = True
        items.append(Item(self._choice, output))


def _reason(said: str) -> FinishReason:
    match said:
        case "length":
            return "length"
        case "stop" | "repetition":
            return "stop"
        case _:
            raise FarFailure(500, f"ended with {shorten(said)!r}")
