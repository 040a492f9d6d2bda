"""Who answers a question on this terminal: a running server that has the model, or the model loaded here."""

from contextlib import suppress

from proxy_inference_engine.cli.remote.running_server import RunningServer, find_server
from proxy_inference_engine.cli.talk.partner import Partner
from proxy_inference_engine.cli.talk.remote_partner import RemotePartner
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.resolve import resolve


def find_partner(config: Config) -> Partner:
    """The model on the running server, where it has the one that is wanted; else that one, loaded here.

    Raises StartupError.
    """
    server = find_server(config)
    if server is None:
        return _local(config)
    name = _served_name(config, server)
    if name is not None or config.model is None:
        return RemotePartner(server, name)
    if config.server is not None:
        return RemotePartner(server, config.model)  # which says what it has
    return _local(config)


def _local(config: Config) -> Partner:
    from proxy_inference_engine.cli.talk.local_partner import LocalPartner  # an engine takes a second to import

    return LocalPartner.load(config)


def _served_name(config: Config, server: RunningServer) -> str | None:
    """What the server calls the configured model: as it was named, or as the file is called."""
    if config.model is None:
        return None
    wanted = [config.model]
    with suppress(StartupError):  # it is not here: the server may have it all the same
        wanted.append(resolve(config.model, config.cache_dir).name)
    return next((name for name in wanted if name in server.names), None)
