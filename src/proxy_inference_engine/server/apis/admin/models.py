"""The pool as its operator sees it: what is loaded, what it takes, and loading, unloading and pinning by hand."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import ClientError, NotFound, PieError, StartupError, shorten
from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.pool.member import Member
from proxy_inference_engine.pool.pool import ModelPool
from proxy_inference_engine.server.apis.shared.route import json_response, state_of
from proxy_inference_engine.server.http.access import visit_of
from proxy_inference_engine.server.http.errors import COMMON
from proxy_inference_engine.server.http.guard import no_key
from proxy_inference_engine.server.http.sse import EventStream
from proxy_inference_engine.server.http.wire import dumps

_LOOK_SECONDS = 0.25  # between two looks at what is being loaded


class InUse(ClientError):
    status = 409
    code = "model_in_use"


async def list_pool(http: HttpRequest) -> Response:
    """Every model, with its place on the disk and the uses of its memory, which the stream of states leaves out."""
    pool = state_of(http).models
    status, members = _status(pool), list(pool.members)
    if pool.can_grow:
        data = zip(status["data"], members, strict=True)
        status["data"] = [{**each, **await _look_closer(pool, member)} for each, member in data]
    return json_response(status)


async def _look_closer(pool: ModelPool, member: Member) -> dict[str, Any]:
    path, parts = await asyncio.to_thread(_path, member), _parts(member)
    needed = await _need(pool, member) or sum((parts or {}).values())
    return {"path": path, "needs_bytes": needed or None, "parts": parts}


def _parts(member: Member) -> dict[str, int] | None:
    """What the memory of a loaded model is for, KV and prefixes as large as they may become; None: it is elsewhere."""
    if member.model is None:
        return None
    answerer = member.model.answerer
    info, stats = answerer.info, answerer.stats()
    kv_bytes = stats.max_kv_tokens * info.kv_bytes_per_token
    parts = {"weights": info.weight_bytes, "kv": kv_bytes, "cache": stats.max_cached_bytes}
    return parts if any(parts.values()) else None


async def _need(pool: ModelPool, member: Member) -> int:
    try:
        return await pool.need(member)
    except PieError:
        return 0


def _path(member: Member) -> str | None:
    try:
        return str(resolve(member.entry.config.model, member.entry.config.cache_dir).path)
    except StartupError:
        return None


async def watch_pool(http: HttpRequest) -> Response:
    """The list as a stream: all of it at first and whenever something in it has changed."""
    pool = state_of(http).models
    return watch(http, lambda: _status(pool))


async def load_model(http: HttpRequest) -> Response:
    """Answers at once; what becomes of it is in the list."""
    pool, member = _find(http)
    pool.load(member)
    return json_response(_member(member))


async def unload_model(http: HttpRequest) -> Response:
    pool, member = _find(http)
    if not await pool.unload(member):
        raise InUse(f"The model {member.id!r} {_use(member)}: cancel what runs, or wait.")
    return json_response(_member(member))


def _use(member: Member) -> str:
    if member.num_users:
        return "is answering a request" if member.num_users == 1 else f"is answering {member.num_users} requests"
    return "has a request waiting for it" if member.num_waiting == 1 else f"has {member.num_waiting} requests waiting"


async def pin_model(http: HttpRequest) -> Response:
    pool, member = _find(http)
    pool.pin(member)
    return json_response(_member(member))


async def unpin_model(http: HttpRequest) -> Response:
    pool, member = _find(http)
    pool.pin(member, False)
    return json_response(_member(member))


def _find(http: HttpRequest) -> tuple[ModelPool, Member]:
    pool, name = state_of(http).models, http.path_params["model_id"]
    member = pool.get(name)
    if member is None:
        raise NotFound(f"The model {shorten(name)!r} does not exist.", code="model_not_found")
    return pool, member


def watch(http: HttpRequest, look: Callable[[], dict[str, Any]]) -> Response:
    """What `look` sees, as a stream: at first, and whenever it has changed; until the key is taken away."""
    state, key = state_of(http), visit_of(http.scope).key

    def look_again() -> dict[str, Any]:
        if not state.keys.keyring.still_has(key):
            raise no_key()
        return look()

    return EventStream(_changes(look_again), _Events(), COMMON, state.drain, state.patience, lambda: None)


class _Events:
    """A `Writer` of one event a change."""

    def feed(self, status: dict[str, Any]) -> str:
        return f"data: {dumps(status)}\n\n"

    def finish(self) -> str:
        return ""


async def _changes(look: Callable[[], dict[str, Any]]) -> AsyncGenerator[dict[str, Any], None]:
    last: dict[str, Any] | None = None
    while True:
        status = look()
        if status != last:
            yield status
            last = status
        await asyncio.sleep(_LOOK_SECONDS)


def _status(pool: ModelPool) -> dict[str, Any]:
    return {
        "object": "list",
        "memory_bytes": pool.used_bytes,
        "max_memory_bytes": pool.max_bytes,
        "data": [_member(member) for member in pool.members],
    }


def _member(member: Member) -> dict[str, Any]:
    model, error = member.model, member.error
    return {
        "id": member.id,
        "object": "model.status",
        "state": member.state,
        "is_pinned": member.is_pinned,
        "memory_bytes": member.num_bytes,
        "context_length": None if model is None else model.context_tokens,
        "running": member.num_users,
        "waiting": member.num_waiting,
        "last_used_at": member.used_at,
        "progress": {"step": member.progress.line, "share": round(member.progress.share, 3)}
        if member.state == "loading"
        else None,
        "error": None if error is None else {"message": error.message, "code": error.code},
    }
