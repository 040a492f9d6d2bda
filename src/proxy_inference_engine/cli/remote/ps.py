"""`pie ps`: what the running server has loaded, and what it answers just now."""

import json
from typing import Any

from proxy_inference_engine.cli.remote.connection import ServerRefusal
from proxy_inference_engine.cli.remote.running_server import RunningServer, need_server
from proxy_inference_engine.cli.terminal import fitted, paint, table
from proxy_inference_engine.config import Config
from proxy_inference_engine.config.sizes import format_size


def ps(config: Config, *, as_json: bool = False) -> int:
    """Raises StartupError where no server answers."""
    server = need_server(config)
    try:
        status, requests = server.status(), server.requests()
    except ServerRefusal as refusal:
        if refusal.status != 403:
            raise
        return _public(server, as_json)
    if as_json:
        print(json.dumps({"url": server.url, "models": status["data"], "requests": requests}))
        return 0
    print(f"{paint(server.url, 'bold')}{_room(status)}")
    print(_members(status["data"]))
    print(f"\n{_requests(requests)}" if requests else "\nNo request runs.")
    return 0


def _public(server: RunningServer, as_json: bool) -> int:
    """What everybody may know: with a key that is no admin's."""
    if as_json:
        models = [{"id": model.id, "state": model.state} for model in server.models]
        print(json.dumps({"url": server.url, "models": models, "requests": None}))
        return 0
    print(paint(server.url, "bold"))
    print(table([("MODEL", "STATE"), *((model.id, model.state) for model in server.models)]))
    print("\nWith an admin's key there is more to see.")
    return 0


def _room(status: dict[str, Any]) -> str:
    if not status["max_memory_bytes"]:
        return ""
    return f", {format_size(status['memory_bytes'])} of {format_size(status['max_memory_bytes'])} in use"


def _members(members: list[dict[str, Any]]) -> str:
    rows = [("MODEL", "STATE", "MEMORY", "CONTEXT", "USERS", "WAITING")]
    for each in members:
        rows.append(
            (
                each["id"] + (" (pinned)" if each["is_pinned"] else ""),
                _state(each),
                format_size(num_bytes) if (num_bytes := _held(each)) else "",
                f"{each['context_length']:,}" if each["context_length"] else "",
                str(each["running"]),
                str(each["waiting"]),
            )
        )
    lines = (paint(fitted(each["error"]["message"], 0), "red") for each in members if each["error"])
    return "\n".join((table(rows, numbers=frozenset({2, 3, 4, 5}), spare=(5, 4)), *lines))


def _held(member: dict[str, Any]) -> int:
    """The bytes that a model holds. Nobody counts those of one that is alone: it has what it needs."""
    held: int = member["memory_bytes"] or (member.get("needs_bytes") or 0) * (member["state"] == "ready")
    return held


def _state(member: dict[str, Any]) -> str:
    if member["state"] == "loading" and member["progress"]:
        return f"loading, {round(100 * member['progress']['share'])} %"
    return str(member["state"])


def _requests(requests: list[dict[str, Any]]) -> str:
    rows = [("REQUEST", "KEY", "ROUTE", "MODEL", "STATE", "SECONDS", "PROMPT", "ANSWER")]
    for each in requests:
        rows.append(
            (
                each["id"],
                each["key"] or "",
                each["route"] or "",
                each["model"] or "",
                each["state"],
                f"{each['seconds']:.1f}",
                _number(each["prompt_tokens"]),
                _number(each["completion_tokens"]),
            )
        )
    return table(rows, numbers=frozenset({5, 6, 7}), spare=(2, 1, 3))


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
