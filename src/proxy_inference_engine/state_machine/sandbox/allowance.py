"""How long each tenant may keep a processor busy with grammars: seconds that are saved up while others compile."""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from proxy_inference_engine.errors import RateLimited

_MAX_TENANTS = 1000  # remembered; whoever was not seen for that long has all of it again


@dataclass(frozen=True, slots=True)
class Allowance:
    """In the long run a tenant has a share of one processor; what it does not use it may use later, up to a bound."""

    max_seconds: float = 60.0
    share: float = 0.5


class _Level(NamedTuple):
    seconds: float
    at: float


class CompileTime:
    """What is left to each tenant. Safe to use from several threads.

    A grammar's cost is known when it is compiled, so a tenant may go below zero, and waits then.
    """

    def __init__(self, allowance: Allowance | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._allowance = allowance or Allowance()
        self._clock = clock
        self._lock = threading.Lock()
        self._levels: OrderedDict[str, _Level] = OrderedDict()

    @contextmanager
    def spent_by(self, tenant: str) -> Iterator[None]:
        """Counts what happens inside. Raises RateLimited where nothing is left."""
        self.check(tenant)
        began = self._clock()
        try:
            yield
        finally:
            self._take(tenant, self._clock() - began)

    def check(self, tenant: str) -> None:
        """Raises RateLimited. Nobody's own work, as that of the command line, is nobody's to use up."""
        left = self._left(tenant)
        if tenant and left <= 0.0:
            wait_s = math.ceil(-left / self._allowance.share) or 1
            raise RateLimited("seconds of compiling grammars", retry_after_s=wait_s)

    def _left(self, tenant: str) -> float:
        with self._lock:
            level = self._levels.get(tenant)
            if level is None:
                return self._allowance.max_seconds
            return min(self._allowance.max_seconds, level.seconds + (self._clock() - level.at) * self._allowance.share)

    def _take(self, tenant: str, seconds: float) -> None:
        left = self._left(tenant) - seconds
        with self._lock:
            self._levels[tenant] = _Level(left, self._clock())
            self._levels.move_to_end(tenant)
            if len(self._levels) > _MAX_TENANTS:
                self._levels.popitem(last=False)
