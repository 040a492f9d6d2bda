"""GET /v1/responses as a WebSocket: `response.create` messages in, the events of the stream out.

Turns on one lane (`stream_id`) come one after the other, those on different lanes beside each other. A response that
is not stored is remembered as long as it is the last of its lane, so that the next turn need only send what is new.
"""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field
from starlette.requests import Request as HttpRequest
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from proxy_inference_engine.errors import ClientError, Forbidden, InvalidRequest, PieError, QueueFull, Unavailable
from proxy_inference_engine.server.apis.responses.history import gather, whole_turn
from proxy_inference_engine.server.apis.responses.memory import TurnMemory
from proxy_inference_engine.server.apis.responses.route import start_response
from proxy_inference_engine.server.apis.responses.run import ResponseRun, event_of
from proxy_inference_engine.server.apis.responses.schema import ResponseRequest
from proxy_inference_engine.server.apis.shared.fields import never, validate
from proxy_inference_engine.server.apis.shared.route import exchange_of
from proxy_inference_engine.server.http.access import SOCKET_METHOD, Visit, attach_visit, note, visit_of
from proxy_inference_engine.server.http.body import ClientGone, note_size, parse_json, share_of
from proxy_inference_engine.server.http.errors import as_pie_error, error_body, error_headers
from proxy_inference_engine.server.http.guard import no_key
from proxy_inference_engine.server.http.websocket import GOING, POLICY, RESTART, mark_of
from proxy_inference_engine.server.http.wire import dumps, new_id
from proxy_inference_engine.server.state import ServerState
from proxy_inference_engine.server.tracing import CURRENT

MAX_LANES = 8  # with something to do
MAX_WAITING = 16  # messages, on all lanes
IDLE_SECONDS = 3600.0
_ROUTE = "/v1/responses"


class SocketRequest(ResponseRequest):
    """A turn. All of them are streamed, and none outlives the socket."""

    type: Literal["response.create"]
    generate: bool = True
    stream_id: Annotated[str, Field(max_length=128)] | None = None
    background: Annotated[None, never(False)] = None  # type: ignore[assignment]  # there is no such thing here


class _Turn(NamedTuple):
    data: dict[str, Any]
    num_bytes: int
    lane: str


async def connect_responses(socket: WebSocket) -> None:
    await socket.accept()
    session = ResponseSession(socket)
    try:
        await session.serve()
    except WebSocketDisconnect:
        pass
    except Forbidden as error:  # the operator cancelled it
        await socket.close(POLICY, error.message)
    finally:
        await session.close()


class ResponseSession:
    def __init__(self, socket: WebSocket) -> None:
        state = socket.app.state.server
        assert isinstance(state, ServerState)
        self._socket = socket
        self._state = state
        self._tenant = visit_of(socket.scope).tenant
        self._share = share_of(socket.scope)
        self._mark = mark_of(socket.scope)
        self._memory = TurnMemory(state.memories, self._tenant)
        self._waiting: dict[str, deque[_Turn]] = {}  # lanes that have something to do
        self._tasks: set[asyncio.Task[None]] = set()
        self._gone = asyncio.Event()

    async def serve(self) -> None:
        """Answer until the client leaves, or has said nothing for long."""
        while True:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    message = await self._socket.receive()
            except TimeoutError:
                if not self._waiting:
                    await self._socket.close(GOING, "nothing was said for an hour")
                    return
                continue
            if message["type"] == "websocket.disconnect":
                return
            await self._take(message)

    async def close(self) -> None:
        """Nobody is left to answer."""
        self._gone.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._memory.close()
        self._share.release()

    async def _take(self, message: Message) -> None:
        raw = message.get("bytes") or (message.get("text") or "").encode()
        try:
            data = await self._share.run(lambda: parse_json(raw), len(raw))
            turn = await self._turn_of(data, len(raw))
        except PieError as error:
            await self._say_error(error, "")
            return
        finally:
            if not self._waiting:
                self._share.release()
        if turn is not None:
            await self._queue(turn)

    async def _turn_of(self, data: Any, num_bytes: int) -> _Turn | None:
        """None: there is nothing to answer."""
        if not isinstance(data, dict):
            raise InvalidRequest("A message has to be a JSON object.")
        if data.get("type") == "response.steer":
            await self._refuse_steering(data)
            return None
        if data.get("type") != "response.create":
            raise InvalidRequest("A message has to be of the type 'response.create'.", param="type")
        lane = data.get("stream_id")
        return _Turn(data, num_bytes, lane if isinstance(lane, str) else "")

    async def _queue(self, turn: _Turn) -> None:
        if sum(map(len, self._waiting.values())) >= MAX_WAITING:
            await self._socket.close(POLICY, f"at most {MAX_WAITING} messages may wait")
            return
        if turn.lane in self._waiting:
            self._waiting[turn.lane].append(turn)
        elif len(self._waiting) >= MAX_LANES:
            await self._say_error(
                QueueFull(f"At most {MAX_LANES} responses are made at once on one socket."), turn.lane
            )
        else:
            self._waiting[turn.lane] = deque([turn])
            self._mark(True)
            task = asyncio.get_running_loop().create_task(self._work(turn.lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, lane: str) -> None:
        """One turn of a lane after the other."""
        turns = self._waiting[lane]
        with suppress(WebSocketDisconnect):
            while turns:
                await self._answer(turns[0])
                turns.popleft()
        del self._waiting[lane]
        if self._waiting:
            return
        self._share.release()
        self._mark(False)
        try:
            self._state.drain.check()
        except Unavailable:
            with suppress(WebSocketDisconnect, RuntimeError):
                await self._socket.close(RESTART, "the server is shutting down")

    async def _answer(self, turn: _Turn) -> None:
        opened = visit_of(self._socket.scope)
        visit = Visit(new_id("req-"), self._tenant, limiter=opened.limiter, may_lead=opened.may_lead)
        around = opened.trace
        if around is not None:
            visit.trace = around.turn()
            CURRENT.set(visit.trace)
        try:
            await self._respond(turn, visit)
            visit.status = 200
        except PieError as error:
            await self._fail(turn, visit, error)
        except ClientGone:
            raise WebSocketDisconnect(1006) from None
        except WebSocketDisconnect:
            raise
        except Exception as error:
            await self._fail(turn, visit, as_pie_error(error))
        finally:
            visit.end()
            note(self._state.metrics.requests, SOCKET_METHOD, _ROUTE, visit)

    async def _respond(self, turn: _Turn, visit: Visit) -> None:
        self._state.drain.check()
        if not self._state.keys.keyring.still_has(visit_of(self._socket.scope).key):
            raise no_key()
        if visit.limiter is not None:
            visit.limiter.admit()
        body = await self._share.run(lambda: validate(SocketRequest, turn.data), turn.num_bytes)
        exchange = await exchange_of(self._http(turn, visit), body, body.model)
        history = await gather(body, self._state.store, self._tenant, self._memory)
        run, headers = await start_response(exchange, history, generates=body.generate)
        try:
            await self._follow(run, headers, turn.lane if body.stream_id is not None else None)
        finally:
            visit.error_code = None if run.error is None else run.error.code
            run.abandon()
        if run.error is not None:
            self._memory.forget(body.previous_response_id or "")
        elif not body.store:
            self._memory.keep(turn.lane, run.response["id"], whole_turn(history, run.response))

    def _http(self, turn: _Turn, visit: Visit) -> HttpRequest:
        """The turn as the request that it would be without a socket."""
        scope = {**self._socket.scope, "type": "http", "method": "POST"}
        attach_visit(scope, visit)
        note_size(scope, turn.num_bytes)
        return HttpRequest(scope, self._until_gone)

    async def _until_gone(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _follow(self, run: ResponseRun, headers: Any, lane: str | None) -> None:
        """What would be said in headers is said in the first event."""
        first = {"headers": dict(headers)} if headers else {}
        every = {} if lane is None else {"stream_id": lane}
        added: dict[str, Any] = {**first, **every}
        async for frames in run.log.news():
            for frame in frames:
                await self._socket.send_text(_with(event_of(frame), added))
                added = every

    async def _fail(self, turn: _Turn, visit: Visit, error: PieError) -> None:
        visit.status, visit.error_code = error.status, error.code
        previous = turn.data.get("previous_response_id")
        if isinstance(previous, str):
            self._memory.forget(previous)
        await self._say_error(error, turn.lane)

    async def _say_error(self, error: PieError, lane: str) -> None:
        headers = {name.decode(): value.decode() for name, value in error_headers(error)}
        detail = {**error_body(error)["error"], **({"headers": headers} if headers else {})}
        event = {"type": "error", "status": error.status, "error": detail}
        await self._socket.send_text(dumps({**event, **({"stream_id": lane} if lane else {})}))

    async def _refuse_steering(self, data: dict[str, Any]) -> None:
        problem = "Steering is not supported by this server: send the input with the next 'response.create'."
        error = ClientError(problem, code="steering_not_supported")
        detail = {"type": error.type, "code": error.code, "message": error.message}
        steer = {"previous_response_id": data.get("previous_response_id"), "input": data.get("input")}
        event = {"type": "response.steer.failed", "sequence_number": 0, "error": detail, "steer": steer}
        await self._socket.send_text(dumps(event))


def _with(event: str, added: dict[str, Any]) -> str:
    """An event in JSON with further fields."""
    return f"{event[:-1]},{dumps(added)[1:]}" if added else event
