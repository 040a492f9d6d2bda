"""What every route does: read a body, find the model, ask it, and write the answer while watching the client."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.engine.base import Place
from proxy_inference_engine.errors import PARAM, Forbidden
from proxy_inference_engine.output.events import PromptRead
from proxy_inference_engine.pool.pool import Lease
from proxy_inference_engine.served.ask import Ask, ChatPrompt
from proxy_inference_engine.served.model import Counted, ServedModel
from proxy_inference_engine.served.stream import AnswerStream, SkippedImage, Step
from proxy_inference_engine.server.apis.shared.fields import MAX_PRIORITY, RequestSchema, validate
from proxy_inference_engine.server.http.access import Visit, visit_of
from proxy_inference_engine.server.http.body import body_size, read_json
from proxy_inference_engine.server.http.errors import COMMON, WireShape
from proxy_inference_engine.server.http.lifetime import supervise
from proxy_inference_engine.server.http.pieces import LONG_CHARS, LongJson
from proxy_inference_engine.server.http.sse import EventStream, Patience, Writer, say_early
from proxy_inference_engine.server.http.wire import dumps
from proxy_inference_engine.server.state import ServerState
from proxy_inference_engine.types import IDLE_PRIORITY

T = TypeVar("T")
BodyT_co = TypeVar("BodyT_co", covariant=True)
SchemaT = TypeVar("SchemaT", bound=RequestSchema)

_RELAXED = "x-pie-relaxed"
_IGNORED = "x-pie-ignored"
_MAX_HEADER_CHARS = 2048
_MORE = "..."
_SCORED_CHARS = 100  # of a token with its alternatives
_PARSED = 7  # times as much as its text takes what was parsed of it


class Whole(Writer[Step], Protocol):
    """A wire format that says nothing before the end."""

    @property
    def num_chars(self) -> int:
        """How long the whole answer is, about."""
        ...

    def body(self) -> dict[str, Any]:
        """The whole answer, in place of `finish`."""
        ...


class _Written:
    """A writer of what is written already, but for its end."""

    def __init__(self, writer: Writer[Step]) -> None:
        self.finish = writer.finish

    def feed(self, frames: str) -> str:
        return frames


class Rank(NamedTuple):
    """When a request has its turn. The tier is what the answer says."""

    tier: Literal["default", "flex", "priority"]
    priority: int


_TIER_PRIORITIES = {"priority": -10_000, "default": 0, "flex": 10_000}


def rank_of(body: object, visit: Visit) -> Rank:
    """A tier that the key may not have is the usual one, as OpenAI has it. Raises Forbidden for such a `priority`."""
    wanted, priority = getattr(body, "service_tier", None), getattr(body, "priority", 0)
    if priority < 0 and not visit.may_lead:
        raise Forbidden(f"{PARAM} below 0 goes before others, which this key may not.", param="priority")
    if visit.fills_idle:
        return Rank("default", IDLE_PRIORITY + MAX_PRIORITY + priority)
    tier: Literal["default", "flex", "priority"] = "default"
    if wanted == "flex" or (wanted == "priority" and visit.may_lead):
        tier = wanted
    return Rank(tier, _TIER_PRIORITIES[tier] + priority)


@dataclass(frozen=True, slots=True)
class Exchange(Generic[BodyT_co]):
    """One HTTP request to a model: the body that was sent, and who is to answer it."""

    http: HttpRequest
    state: ServerState
    visit: Visit
    body: BodyT_co
    lease: Lease

    @property
    def model(self) -> ServedModel:
        return self.lease.model

    @property
    def tenant(self) -> str:
        return self.visit.tenant

    @property
    def rank(self) -> Rank:
        return rank_of(self.body, self.visit)

    async def off_loop(self, work: Callable[[], T], extra_chars: int = 0) -> T:
        """Do work that goes through the whole body, and so much text beside it; in a thread where that is long."""
        return await self.threads(work, body_size(self.http.scope) + extra_chars)

    async def threads(self, work: Callable[[], T], num_chars: int) -> T:
        """Do work that goes through so much text; in a thread where it is long."""
        return await self.state.threads.run(work, self.tenant, num_chars)

    async def answer(self, *asks: Ask) -> AnswerStream:
        """The caller has to see to it that the stream is iterated or cancelled: nothing may come between."""
        self.state.drain.check()
        priority = self.rank.priority
        if priority:
            asks = tuple(replace(ask, priority=priority) for ask in asks)
        metrics = self.state.metrics.models.get(self.model.id) or self.state.metrics.of(self.model.id)
        trace = None if self.visit.trace is None else self.visit.trace.watch(metrics, self.model.id)
        work = self.model.answer(*asks, observer=trace or metrics)
        if any(ask.prompt.has_images for ask in asks):
            stream = await supervise(work, self.http.receive, self.state.drain, undo=AnswerStream.cancel)
        elif self._can_tell and any(each.is_bound for each in asks):
            patience = self.state.patience
            stream = await _meanwhile(
                work, patience.first_ping_s, partial(_say, self.visit, _compiling_news(), patience)
            )
        else:
            stream = await work
        if trace is not None:
            trace.begin(stream.requests, is_chat=isinstance(asks[0].prompt, ChatPrompt))
        self.visit.answer = stream
        place = stream.place()
        if place is not None and place.position:
            self.visit.headers += _place_headers(place)
        if self.visit.limiter is not None:
            self.visit.limiter.charge(stream.counts.num_prompt_tokens)
        return stream

    @property
    def _can_tell(self) -> bool:
        """Whether something can be said before the answer begins. On a socket nothing comes before a turn."""
        return self.visit.send is not None and getattr(self.body, "stream", False) is True

    def note_prompt(self, num_tokens: int) -> None:
        """What is computed without an answer."""
        self.visit.num_prompt_tokens = num_tokens
        self.state.usage.by_key[self.tenant].num_prompt_tokens += num_tokens
        if self.visit.limiter is not None:
            self.visit.limiter.charge(num_tokens)

    async def count(self, ask: Ask) -> Counted:
        work = self.model.count(ask)
        return await (supervise(work, self.http.receive, self.state.drain) if ask.prompt.has_images else work)

    def stream(
        self,
        stream: AnswerStream,
        writer: Writer[Step],
        headers: Mapping[str, str],
        *,
        shape: WireShape = COMMON,
        steps: AsyncGenerator[Step, None] | None = None,
    ) -> Response:
        """`steps` are those of the stream, where something is done with them on the way."""
        drain, patience = self.state.drain, self.state.patience
        frames = self._fed(steps or stream.steps(), writer.feed)
        news = partial(waiting_news, stream)
        return EventStream(frames, _Written(writer), shape, drain, patience, stream.cancel, headers, news)

    async def fold(self, stream: AnswerStream, feed: Callable[[Step], object]) -> None:
        """Feed all steps of an answer. Raises ClientGone when nobody waits for it any longer."""
        try:
            await supervise(_last(self._fed(stream.steps(), feed)), self.http.receive, self.state.drain)
        finally:
            stream.cancel()

    async def whole(self, stream: AnswerStream, whole: Whole, headers: Mapping[str, str]) -> Response:
        await self.fold(stream, whole.feed)
        if whole.num_chars <= LONG_CHARS:
            return Response(whole.finish().encode(), media_type="application/json", headers=headers)
        return write_json(self.http, whole.body(), whole.num_chars, headers)

    async def write(
        self, value: Any, num_chars: int, headers: Mapping[str, str] | None = None, *, num_bytes: int = 0
    ) -> Response:
        """An answer of many numbers: they take longer to write than text does. `num_bytes`: as in `write_counted`."""
        if num_chars > LONG_CHARS:
            return write_counted(self.http, value, num_chars, num_bytes, headers)
        text = await self.threads(lambda: dumps(value), num_chars)
        return Response(text.encode(), media_type="application/json", headers=headers)

    async def _fed(self, steps: AsyncGenerator[Step, None], feed: Callable[[Step], T]) -> AsyncGenerator[T, None]:
        """What comes of each step."""
        async with aclosing(steps):
            async for step in steps:
                num_chars = _num_chars(step)
                yield await self.threads(partial(feed, step), num_chars) if num_chars else feed(step)


async def _last(fed: AsyncGenerator[object, None]) -> None:
    async with aclosing(fed):
        async for _ in fed:
            pass


def _num_chars(step: Step) -> int:
    """What a step may have much of: the tokens of a prompt that is scored. All else comes a few tokens at a time."""
    num_scored = 0
    for _, event in step:
        if isinstance(event, PromptRead) and event.prompt_logprobs:
            num_scored += len(event.prompt_logprobs)
    return num_scored * _SCORED_CHARS


def _place_headers(place: Place) -> list[tuple[bytes, bytes]]:
    """The place when the request came: the head of an answer that is not streamed goes out at its end."""
    headers = [(b"x-pie-queue-position", str(place.position).encode())]
    if place.wait_s is not None:
        headers.append((b"x-pie-queue-seconds", str(math.ceil(place.wait_s)).encode()))
    return headers


def waiting_news(stream: AnswerStream) -> str | None:
    """What a client who waits for its turn is told in a stream; None: it does not wait."""
    place = stream.place()
    if place is None or not place.position:
        return None
    about = "" if place.wait_s is None else f", about {math.ceil(place.wait_s)} s"
    return f"queue position {place.position}{about}"


def state_of(http: HttpRequest) -> ServerState:
    state = http.app.state.server
    assert isinstance(state, ServerState)
    return state


async def receive(http: HttpRequest, schema: type[SchemaT]) -> Exchange[SchemaT]:
    """Reads the body and finds the model it names. Raises ClientError that names the parameter."""
    body = await read_json(http.scope, http.receive, partial(validate, schema))
    return await exchange_of(http, body, getattr(body, "model", None))


async def exchange_of(http: HttpRequest, body: T, model_name: str | None) -> Exchange[T]:
    """Waits for the model to be loaded where it is not, as long as the client does."""
    state, visit = state_of(http), visit_of(http.scope)
    member = state.models.find(model_name)
    adapter = state.models.adapter_of(model_name)
    visit.model = member.id if adapter is None else f"{member.id}:{adapter}"
    state.usage.by_key[visit.tenant].num_requests += 1
    lease = state.models.lease(member, adapter)
    if lease is None:
        can_tell = visit.send is not None and getattr(body, "stream", False)  # on a socket nothing comes before a turn
        news = [_tell(visit, lambda: member.news, state.patience)] if can_tell else []
        began = time.monotonic()
        work = state.models.obtain(member, adapter)
        lease = await supervise(work, http.receive, state.drain, *news, undo=Lease.release)
        if visit.trace is not None:
            visit.trace.took("load", began)
    visit.at_end(lease.release)
    return Exchange(http, state, visit, body, lease)


async def _tell(visit: Visit, news: Callable[[], str], patience: Patience) -> None:
    """What a client who waits for a stream is told before it begins. Never ends by itself."""
    await asyncio.sleep(patience.first_ping_s)
    await _say(visit, news, patience)


async def _say(visit: Visit, news: Callable[[], str], patience: Patience) -> None:
    while True:
        await say_early(visit, news())
        await asyncio.sleep(patience.first_ping_s)


def _compiling_news() -> Callable[[], str]:
    began = time.monotonic()
    return lambda: f"compiling the grammar, {time.monotonic() - began:.0f} s"


async def _meanwhile(work: Coroutine[Any, Any, T], after_s: float, other: Callable[[], Coroutine[Any, Any, None]]) -> T:
    """The result of work, with something else going on from some time on until it is there: it is rarely so late."""
    loop = asyncio.get_running_loop()
    beside: list[asyncio.Task[None]] = []
    timer = loop.call_later(after_s, lambda: beside.append(loop.create_task(other())))
    try:
        return await work
    finally:
        timer.cancel()
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)


def write_parsed(http: HttpRequest, value: Any, num_chars: int) -> Response:
    """What was parsed of so much text. Counted until it is read: it is asked for in no time, and takes several times
    as much as its text. Raises QueueFull or Busy."""
    return write_counted(http, value, num_chars, _PARSED * num_chars)


def write_counted(
    http: HttpRequest, value: Any, num_chars: int, num_bytes: int, headers: Mapping[str, str] | None = None
) -> Response:
    """What takes so many bytes until it is read, and was quickly made; 0: it was not. Raises QueueFull or Busy."""
    if num_bytes and num_chars > LONG_CHARS:
        budget, visit = state_of(http).answers, visit_of(http.scope)
        budget.take(visit.tenant, num_bytes)
        visit.at_end(lambda: budget.give(visit.tenant, num_bytes))
    return write_json(http, value, num_chars, headers)


def write_json(http: HttpRequest, value: Any, num_chars: int, headers: Mapping[str, str] | None = None) -> Response:
    """Write a short value at once, a long one in pieces while the client reads. `num_chars`: about how long it is."""
    if num_chars <= LONG_CHARS:
        return json_response(value, headers)
    state, tenant = state_of(http), visit_of(http.scope).tenant

    async def off_loop(work: Callable[[], str | None], size: int) -> str | None:
        return await state.threads.run(work, tenant, size)

    return LongJson(value, state.drain, off_loop, headers)


def json_response(body: Any, headers: Mapping[str, str] | None = None) -> Response:
    return Response(dumps(body).encode(), media_type="application/json", headers=headers)


def relaxed_headers(relaxed: Sequence[str]) -> Mapping[str, str]:
    """What schemas ask for and no grammar can bind: `path:keyword`."""
    return _listed(_RELAXED, relaxed)


def ignored_headers(ignored: Sequence[str]) -> Mapping[str, str]:
    """What was skipped, by name."""
    return _listed(_IGNORED, ignored)


def image_names(skipped: Sequence[SkippedImage]) -> list[str]:
    """How images that were skipped are named among what is ignored; those of earlier, stored turns have one name."""
    return list(dict.fromkeys(f"{each.param}:image" for each in skipped))


def _listed(header: str, names: Sequence[str]) -> Mapping[str, str]:
    """Separated by commas; a list that is too long ends in dots. The names are the client's, so quoted."""
    items: list[str] = []
    num_chars = len(_MORE)
    for item in map(_quoted, names):
        num_chars += len(item) + 2
        if num_chars > _MAX_HEADER_CHARS:
            items.append(_MORE)
            break
        items.append(item)
    return {header: ", ".join(items)} if items else {}


def _quoted(text: str) -> str:
    return "".join(c if "!" <= c <= "~" and c not in ",%" else quote(c, safe="") for c in text)
