"""Who uses the sandbox next: one at a time, and of those who wait the tenant whose last turn is longest ago.

And for how long: each tenant has a share of a processor, and saves up what it does not use.
"""

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy_inference_engine.errors import RateLimited, Unavailable

_MAX_TENANTS = 1000  # remembered


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """How long and how many may wait. Whoever waits holds a thread that others need, so once the one at work is slow,
    only a few of each tenant go on waiting; a burst of quick ones comes through."""

    max_seconds: float = 10.0
    max_waiting: int = 16
    slow_seconds: float = 0.25
    max_waiting_slow: int = 4
    max_waiting_slow_each: int = 2


@dataclass(eq=False, slots=True)
class _Ticket:
    tenant: str
    is_called: threading.Event = field(default_factory=threading.Event)


class SandboxTurns:
    """Safe to use from several threads; made for them."""

    def __init__(self, patience: TurnLimits | None = None) -> None:
        self._patience = patience or TurnLimits()
        self._lock = threading.Lock()
        self._waiting: deque[_Ticket] = deque()
        self._is_taken = False
        self._taken_at = 0.0
        self._num_turns = 0
        self._last_turns: OrderedDict[str, int] = OrderedDict()  # of tenants: the number of the turn

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_taken(self) -> bool:
        return self._is_taken

    @contextmanager
    def turn(self, tenant: str) -> Iterator[None]:
        """Raises Unavailable when too many wait, or for too long."""
        self._enter(tenant)
        try:
            yield
        finally:
            self._leave()

    def _enter(self, tenant: str) -> None:
        ticket = _Ticket(tenant)
        with self._lock:
            if not self._is_taken:
                self._take(tenant)
                return
            self._waiting.append(ticket)
            if len(self._waiting) > self._patience.max_waiting or self._is_one_too_many(ticket):
                self._waiting.remove(ticket)
                raise _flooded()
        self._wait(ticket)

    def _wait(self, ticket: _Ticket) -> None:
        deadline = time.monotonic() + self._patience.max_seconds
        while not ticket.is_called.wait(min(self._patience.slow_seconds, max(0.0, deadline - time.monotonic()))):
            with self._lock:
                if ticket.is_called.is_set():
                    return
                if time.monotonic() >= deadline or self._is_one_too_many(ticket):
                    self._waiting.remove(ticket)
                    raise _flooded()

    def _is_one_too_many(self, ticket: _Ticket) -> bool:
        """Whether others before it are enough already to wait for a slow one."""
        if time.monotonic() - self._taken_at < self._patience.slow_seconds:
            return False
        before = list(self._waiting)[: self._waiting.index(ticket)]
        num_own = sum(other.tenant == ticket.tenant for other in before)
        return num_own >= self._patience.max_waiting_slow_each or len(before) >= self._patience.max_waiting_slow

    def _take(self, tenant: str) -> None:
        self._is_taken, self._taken_at = True, time.monotonic()
        self._num_turns += 1
        self._last_turns[tenant] = self._num_turns
        self._last_turns.move_to_end(tenant)
        if len(self._last_turns) > _MAX_TENANTS:
            self._last_turns.popitem(last=False)

    def _leave(self) -> None:
        with self._lock:
            self._is_taken = False
            if not self._waiting:
                return
            ticket = min(self._waiting, key=lambda one: self._last_turns.get(one.tenant, 0))  # the first of equals
            self._waiting.remove(ticket)
            self._take(ticket.tenant)
            ticket.is_called.set()


def _flooded() -> Unavailable:
    message = "too many grammars are being compiled; try again soon"
    return Unavailable(message, code="server_is_overloaded", retry_after_s=2)


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
