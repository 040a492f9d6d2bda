"""What the routes work with: the engine, the model's prompt and defaults, and the server's own parts."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from starlette.requests import Request as HttpRequest

from proxy_inference_engine.engine.base import Engine
from proxy_inference_engine.errors import NotFound
from proxy_inference_engine.formats import Format
from proxy_inference_engine.images import ImageLimits, ImageLoader
from proxy_inference_engine.models.profile import Profile
from proxy_inference_engine.prompt.render import PromptRenderer
from proxy_inference_engine.server.aliases import Aliases
from proxy_inference_engine.server.background import Runs
from proxy_inference_engine.server.breakers import Breakers
from proxy_inference_engine.server.metrics import Metrics
from proxy_inference_engine.server.param import shorten
from proxy_inference_engine.server.sealing import Sealer
from proxy_inference_engine.server.sse import Patience
from proxy_inference_engine.server.supervise import Drain
from proxy_inference_engine.state_machine.machine import MachineBuilder
from proxy_inference_engine.store import Store
from proxy_inference_engine.types import State

ALIAS = "default"


@dataclass(frozen=True, slots=True)
class Services:
    engine: Engine
    model_id: str
    renderer: PromptRenderer
    format: Format
    machines: MachineBuilder
    defaults: Profile
    metrics: Metrics
    breakers: Breakers
    state_overrides: Mapping[State, Mapping[str, float]] = field(default_factory=lambda: MappingProxyType({}))
    drain: Drain = field(default_factory=Drain)
    patience: Patience = field(default_factory=Patience)
    store: Store = field(default_factory=lambda: Store.open(None))
    created: int = field(default_factory=lambda: int(time.time()))
    sealer: Sealer = field(default_factory=Sealer)
    runs: Runs = field(default_factory=Runs)
    aliases: Aliases = field(default_factory=Aliases)
    images: ImageLoader = field(default_factory=lambda: ImageLoader(ImageLimits(), None))

    def serves(self, name: str) -> bool:
        return name in (self.model_id, ALIAS) or self.aliases.has(name)

    def check_model(self, name: str | None) -> None:
        """A request names the model that is served, or nothing happens: names never become paths."""
        if name is not None and not self.serves(name):
            raise NotFound(f"The model {shorten(name)!r} does not exist.", param="model", code="model_not_found")


def services_of(request: HttpRequest) -> Services:
    services = request.app.state.services
    assert isinstance(services, Services)
    return services
