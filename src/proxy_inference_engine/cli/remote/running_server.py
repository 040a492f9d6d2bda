"""The running server that a command talks to: where it is, what it serves, and whether it is one of ours."""

import contextlib
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from proxy_inference_engine.cli.banner import url
from proxy_inference_engine.cli.remote.connection import ServerConnection, ServerRefusal, Unreachable
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError

_PROBE_S = 2.0
_OWNER = "proxy-inference-engine"
NO_SERVER = "none"


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model as a server lists it."""

    id: str
    state: str
    context_tokens: int | None
    memory_bytes: int | None
    alias_of: str | None = None


class RunningServer:
    def __init__(self, connection: ServerConnection, models: list[ListedModel]) -> None:
        self.connection = connection
        self.models = models

    @property
    def url(self) -> str:
        return self.connection.url

    @property
    def names(self) -> list[str]:
        return [model.id for model in self.models]

    def model(self, name: str | None) -> ListedModel:
        """The model of that name; None: the first that can answer. Raises StartupError that says which there are."""
        if name is None or name == "default":
            return next((model for model in self.models if model.state == "ready"), self.models[0])
        for model in self.models:
            if model.id == name:
                return model
        raise StartupError(f"the server at {self.url} has no model {name!r}; it has {', '.join(self.names)}")

    def status(self) -> dict[str, Any]:
        """What the operator sees: models with memory and progress. Raises ServerRefusal without an admin's key."""
        found: dict[str, Any] = self.connection.get("/admin/models")
        return found

    def requests(self) -> list[dict[str, Any]]:
        """What runs now. Raises ServerRefusal without an admin's key."""
        found: list[dict[str, Any]] = self.connection.get("/admin/requests")["data"]
        return found

    def unload(self, name: str) -> None:
        self.connection.post(f"/admin/models/{quote(name, safe='')}/unload")

    def stop(self) -> int:
        """End it: how many answers run still, and get their time. Raises ServerRefusal without an admin's key."""
        return int(self.connection.post("/admin/stop")["num_running"])

    def is_listening(self) -> bool:
        with contextlib.suppress(ServerRefusal):  # which is an answer
            try:
                self.connection.get("/health", _PROBE_S)
            except Unreachable:
                return False
        return True

    def progress(self, name: str) -> str:
        """How far a load of the model is; nothing where it is loaded, or where nobody says."""
        with contextlib.suppress(ServerRefusal, Unreachable, KeyError, TypeError):
            for member in self.status()["data"]:
                if member["id"] == name and member["state"] == "loading":
                    return f"loading {name}: {round(100 * member['progress']['share'])} %"
        return ""


def address(config: Config) -> str | None:
    """Where a server would be; None: none is wanted."""
    if config.server == NO_SERVER:
        return None
    return config.server or url(config.host, config.port)


def find_server(config: Config) -> RunningServer | None:
    """The server, where there is one of ours; one that is named has to answer. Raises StartupError."""
    where = address(config)
    if where is None or (config.server is None and config.port == 0):
        return None
    connection = ServerConnection(where, _key(config))
    try:
        connection.get("/health", _PROBE_S)
        return RunningServer(connection, _list_models(connection))
    except ServerRefusal as refusal:
        if refusal.status == 401:
            wants = "wants an API key" if connection.key is None else "does not know this API key"
            raise StartupError(
                f"the server at {connection.url} {wants}: set PIE_CLIENT_KEY to one of its keys, or --server none"
            ) from None
        if refusal.status == 403:
            raise StartupError(f"the server at {connection.url} refuses: {refusal.message}") from None
        if config.server is not None:
            raise
    except Unreachable:
        if config.server is not None:
            raise
    return None


def need_server(config: Config) -> RunningServer:
    """Raises StartupError that says what to do."""
    found = find_server(config)
    if found is None:
        where = address(config)
        nowhere = f"no server answers at {where}" if where else "no server is wanted (server is none)"
        raise StartupError(f"{nowhere}: start one with `pie serve`, or name another with --server URL")
    return found


def _key(config: Config) -> str | None:
    if config.client_key is not None:
        return config.client_key
    written = [key for key in config.api_keys if not key.is_hashed]
    # An operator's own machine: where the file has an admin's key, the commands may do what an admin may.
    written.sort(key=lambda key: not key.is_admin)
    return written[0].key if written else None


def _list_models(connection: ServerConnection) -> list[ListedModel]:
    """Raises Unreachable for a server that is not ours."""
    listed = connection.get("/v1/models", _PROBE_S)
    data = listed.get("data") if isinstance(listed, dict) else None
    if not data or any(model.get("owned_by") != _OWNER for model in data):
        raise Unreachable(f"{connection.url} is no server of ours")
    return [
        ListedModel(
            id=model["id"],
            state=model["state"],
            context_tokens=model["context_length"],
            memory_bytes=model["memory_bytes"],
            alias_of=model.get("alias_of") or model.get("parent"),
        )
        for model in data
    ]
