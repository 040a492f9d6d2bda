"""What the routes share: the pool of models, the store, the seal, running answers, and the server's own end."""

from dataclasses import dataclass, field

from proxy_inference_engine.pool.pool import ModelPool
from proxy_inference_engine.pool.pulls import Pulls
from proxy_inference_engine.pool.reload import PoolReload
from proxy_inference_engine.served.model import Threads
from proxy_inference_engine.server.apis.responses.run import ResponseRuns
from proxy_inference_engine.server.apis.responses.teller import Teller
from proxy_inference_engine.server.apis.shared.sealer import Sealer
from proxy_inference_engine.server.http.access import Visits
from proxy_inference_engine.server.http.body import BodyBudget
from proxy_inference_engine.server.http.keyring import Keyring, KeySource
from proxy_inference_engine.server.http.lifetime import Drain
from proxy_inference_engine.server.http.sse import Patience
from proxy_inference_engine.server.metrics import Metrics
from proxy_inference_engine.server.neighbours import Neighbours
from proxy_inference_engine.server.usage import UsageKeeper
from proxy_inference_engine.store import Store

MAX_MEMORY_BYTES = 64 * 1024 * 1024
MAX_ANSWER_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerState:
    models: ModelPool
    metrics: Metrics
    usage: UsageKeeper
    pulls: Pulls
    runs: ResponseRuns
    teller: Teller
    keys: KeySource = field(default_factory=lambda: KeySource(Keyring(()), None, ()))
    visits: Visits = field(default_factory=Visits)
    drain: Drain = field(default_factory=Drain)
    patience: Patience = field(default_factory=Patience)
    store: Store = field(default_factory=lambda: Store.open(None))
    sealer: Sealer = field(default_factory=Sealer)
    threads: Threads = field(default_factory=Threads)
    reload: PoolReload | None = None  # None: the configuration is nobody's to read again
    neighbours: Neighbours | None = None  # None: nobody else answers on the port
    answers: BodyBudget = field(default_factory=lambda: BodyBudget(MAX_ANSWER_BYTES))  # made sooner than read
    memories: BodyBudget = field(default_factory=lambda: BodyBudget(MAX_MEMORY_BYTES))  # of what sockets remember

    def render_metrics(self) -> bytes:
        """The metrics of all processes on the port."""
        own = self.metrics.render()
        return own if self.neighbours is None else self.neighbours.together(own)

    def spread(self) -> None:
        """What was read again here is read again by the other processes on the port."""
        if self.neighbours is not None:
            self.neighbours.spread()
