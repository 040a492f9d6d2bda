"""`pie stop NAME`: take a model out of the running server's memory. The server loads it again when it is asked for."""

from proxy_inference_engine.cli.remote.running_server import need_server
from proxy_inference_engine.config import Config


def stop(config: Config, *, model: str) -> int:
    """Raises StartupError without a server or such a model, ServerRefusal while it answers somebody."""
    server = need_server(config)
    found = server.model(model)
    server.unload(found.alias_of or found.id)
    print(f"Unloaded {found.alias_of or found.id}; the next request for it loads it again.")
    return 0
