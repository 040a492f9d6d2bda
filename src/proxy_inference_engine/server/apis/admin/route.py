"""What the operator sees and does while the server runs: who uses how much, what runs now, and the keys.

Nothing here shows a word of what was said.
"""

import asyncio
import ipaddress
import time
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Scope

from proxy_inference_engine.errors import Forbidden, InvalidRequest, NotFound, StartupError, shorten
from proxy_inference_engine.served.stream import AnswerStream
from proxy_inference_engine.server.apis.shared.route import json_response, state_of
from proxy_inference_engine.server.http.access import visit_of
from proxy_inference_engine.server.state import ServerState


async def get_usage(http: HttpRequest) -> Response:
    totals = await state_of(http).usage.totals()
    data = [
        {
            "key": key,
            "requests": usage.num_requests,
            "prompt_tokens": usage.num_prompt_tokens,
            "cached_tokens": usage.num_cached_tokens,
            "completion_tokens": usage.num_tokens,
        }
        for key, usage in totals.items()
    ]
    return json_response({"object": "list", "data": data})


async def list_requests(http: HttpRequest) -> Response:
    visit_of(http.scope).is_routine = True
    return json_response({"object": "list", "data": _running(http)})


def _running(http: HttpRequest) -> list[dict[str, Any]]:
    """All but the one that asks. A response in the background is one, also while its first request looks on."""
    state, mine = state_of(http), visit_of(http.scope)
    answers = [run.answer for _, _, run in state.runs.in_background() if run.answer is not None]
    visits = [(id_, scope, visit_of(scope)) for id_, scope in state.visits]
    data = [_request(id_, scope) for id_, scope, visit in visits if visit is not mine and visit.answer not in answers]
    return data + _background(state)


def _request(id_: str, scope: Scope) -> dict[str, Any]:
    visit = visit_of(scope)
    return {
        "id": id_,
        "object": "request",
        "request_id": visit.request_id,
        "key": visit.tenant or None,
        "route": getattr(scope.get("route"), "path", None),
        "model": visit.model,
        "seconds": round(time.monotonic() - visit.started, 3),
        **_progress(visit.answer),
    }


def _background(state: ServerState) -> list[dict[str, Any]]:
    """Responses that go on without a connection. Their ids are ours, and known to whoever started them."""
    return [
        {
            "id": id_,
            "object": "request",
            "request_id": None,
            "key": owner,
            "route": "/v1/responses",
            "model": run.head.model,
            "seconds": round(max(0.0, time.time() - run.head.created_at), 3),
            **_progress(run.answer),
        }
        for owner, id_, run in state.runs.in_background()
    ]


def _progress(answer: AnswerStream | None) -> dict[str, Any]:
    if answer is None:
        return {"state": "preparing", "prompt_tokens": None, "cached_tokens": None, "completion_tokens": None}
    return {
        "state": "answering" if answer.num_tokens else "waiting",
        "prompt_tokens": answer.counts.num_prompt_tokens,
        "cached_tokens": answer.counts.num_cached_tokens,
        "completion_tokens": answer.num_tokens,
    }


async def cancel_request(http: HttpRequest) -> Response:
    state, id_ = state_of(http), http.path_params["request_id"]
    visit = state.visits.find(id_)
    if visit is not None:
        visit.cancel()
    elif not _cancel_background(state, id_):
        raise NotFound(f"No request {shorten(id_)!r} is running.", param="request_id")
    return json_response({"id": id_, "object": "request", "cancelled": True})


def _cancel_background(state: ServerState, id_: str) -> bool:
    runs = [run for _, each, run in state.runs.in_background() if each == id_]
    for run in runs:
        run.cancel()
    return bool(runs)


async def stop_server(http: HttpRequest) -> Response:
    """End the server as a signal does: what runs gets its time. Where there are no keys, only this machine may ask."""
    state = state_of(http)
    if state.keys.keyring.is_open and not _is_near(http):
        raise Forbidden("Without keys the server is ended from its own machine alone.", code="not_local")
    num_running = sum(each["model"] is not None for each in _running(http))
    if not state.drain.ask():
        raise InvalidRequest("This server is run by another program, which has to end it.")
    return json_response({"object": "server", "stopping": True, "num_running": num_running})


def _is_near(http: HttpRequest) -> bool:
    try:
        address = ipaddress.ip_address(http.client.host if http.client else "")
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


async def reload_keys(http: HttpRequest) -> Response:
    keys = state_of(http).keys
    if keys.path is None:
        raise InvalidRequest("There is no key file: keys of the environment stay as they are until the next start.")
    try:
        num_keys = await asyncio.to_thread(keys.reload)
    except StartupError:
        message = "The key file cannot be used, and the keys stay as they were: the server's log says why."
        raise InvalidRequest(message, code="invalid_key_file") from None
    state_of(http).spread()
    return json_response({"object": "keys", "num_keys": num_keys})


async def reload_config(http: HttpRequest) -> Response:
    """Models of the configuration as it is now. The reason why it cannot be used is in the log: it may name files."""
    reload = state_of(http).reload
    if reload is None:
        raise InvalidRequest("There is no configuration to be read again: this server was given its models.")
    try:
        models, unapplied = await reload.reload()
    except StartupError:
        message = "The configuration cannot be used, and stays as it was: the server's log says why."
        raise InvalidRequest(message, code="invalid_config") from None
    state_of(http).spread()
    return json_response({"object": "config", **models._asdict(), "needs_restart": unapplied})
