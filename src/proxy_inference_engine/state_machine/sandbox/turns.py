"""Who uses a sandbox next: a tenant has one at a time, and of those who wait the one whose last turn is longest ago.

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
    """How long and how many may wait. Whoever waits holds a thread that others need, so once those at work are slow,
    only a few of each tenant go on waiting; a burst of quick ones comes through."""

    max_seconds: float = 10.0
    max_waiting: int = 16
    slow_seconds: float = 0.25
    max_waiting_slow: int = 4
    max_waiting_slow_each: int = 2


@dataclass(eq=False, slots=True)
class _Ticket:
    tenant: str
    place: int = -1
    is_called: threading.Event = field(default_factory=threading.Event)


class _Stay(NamedTuple):
    tenant: str
    since: float


class SandboxTurns:
    """Safe to use from several threads; made for them. Where there are several places, a tenant has one at most, so
    that what one tenant asks for holds up nobody else."""

    def __init__(self, patience: TurnLimits | None = None, num_places: int = 1) -> None:
        self._patience = patience or TurnLimits()
        self._lock = threading.Lock()
        self._waiting: deque[_Ticket] = deque()
        self._stays: dict[int, _Stay] = {}  # by place
        self._num_places = num_places
        self._num_turns = 0
        self._last_turns: OrderedDict[str, int] = OrderedDict()  # of tenants: the number of the turn

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_taken(self) -> bool:
        return bool(self._stays)

    @contextmanager
    def turn(self, tenant: str) -> Iterator[int]:
        """The number of the place. Raises Unavailable when too many wait, or for too long."""
        ticket = _Ticket(tenant)
        self._enter(ticket)
        try:
            yield ticket.place
        finally:
            self._leave(ticket.place)

    def _enter(self, ticket: _Ticket) -> None:
        with self._lock:
            if len(self._stays) < self._num_places and self._may_enter(ticket):
                self._take(ticket)
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
        """Whether others before it are enough already to wait for slow ones."""
        own = [stay for stay in self._stays.values() if stay.tenant == ticket.tenant]
        latest = max((stay.since for stay in own or self._stays.values()), default=math.inf)
        if time.monotonic() - latest < self._patience.slow_seconds:
            return False
        before = list(self._waiting)[: self._waiting.index(ticket)]
        num_own = sum(other.tenant == ticket.tenant for other in before)
        return num_own >= self._patience.max_waiting_slow_each or len(before) >= self._patience.max_waiting_slow

    def _may_enter(self, ticket: _Ticket) -> bool:
        return all(stay.tenant != ticket.tenant for stay in self._stays.values())

    def _take(self, ticket: _Ticket) -> None:
        ticket.place = next(place for place in range(self._num_places) if place not in self._stays)
        self._stays[ticket.place] = _Stay(ticket.tenant, time.monotonic())
        self._num_turns += 1
        self._last_turns[ticket.tenant] = self._num_turns
        self._last_turns.move_to_end(ticket.tenant)
        if len(self._last_turns) > _MAX_TENANTS:
            self._last_turns.popitem(last=False)

    def _leave(self, place: int) -> None:
        with self._lock:
            del self._stays[place]
            waiting = filter(self._may_enter, self._waiting)
            ticket = min(waiting, key=lambda one: self._last_turns.get(one.tenant, 0), default=None)  # first of equals
            if ticket is None:
                return
            self._waiting.remove(ticket)
            self._take(ticket)
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
