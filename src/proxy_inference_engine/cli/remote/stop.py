"""`pie stop` ends the running server; `pie stop NAME` unloads a model, and the next request loads it."""

import time

from proxy_inference_engine.cli.remote.running_server import RunningServer, need_server
from proxy_inference_engine.cli.terminal import agrees
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError

_LOOK_S = 0.1
_MAX_S = 15.0  # it stops listening at once; whoever still listens then is somebody else


def stop(config: Config, *, model: str | None = None, is_sure: bool = False) -> int:
    """Raises StartupError without a server or such a model, ServerRefusal for a key that is no admin's."""
    server = need_server(config)
    return _end(server, is_sure=is_sure) if model is None else _unload(server, model)


def _unload(server: RunningServer, name: str) -> int:
    """A model that answers somebody stays: raises ServerRefusal."""
    found = server.model(name)
    server.unload(found.alias_of or found.id)
    print(f"Unloaded {found.alias_of or found.id}; the next request for it loads it again.")
    return 0


def _end(server: RunningServer, *, is_sure: bool) -> int:
    """Asks first where somebody is being answered, unless it is told not to."""
    running = _count(sum(each["model"] is not None for each in server.requests()))
    if running and not is_sure and not agrees(f"The server at {server.url} is answering {running}. End it?"):
        print("It goes on.")
        return 1
    left = _count(server.stop())
    deadline = time.monotonic() + _MAX_S
    while server.is_listening():
        if time.monotonic() > deadline:
            raise StartupError(f"the server at {server.url} was ended and answers again: something has restarted it")
        time.sleep(_LOOK_S)
    rest = f"; it takes nothing new, and finishes {left} first" if left else ""
    print(f"Stopped the server at {server.url}{rest}.")
    return 0


def _count(number: int) -> str:
    return "" if not number else "one request" if number == 1 else f"{number} requests"
