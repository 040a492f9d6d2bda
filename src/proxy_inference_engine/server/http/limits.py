"""How much each key may use: buckets that refill evenly, in memory. Only there where limits are configured.

A request is let in while there is anything left. What it costs in tokens is known later and taken then, so a bucket may
go below zero, and fills up from there before the next one is let in.
"""

import math
import time
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from proxy_inference_engine.config.limits import KeyLimits, LimitTable
from proxy_inference_engine.errors import RateLimited

Unit = Literal["requests", "tokens"]
UNITS: tuple[Unit, ...] = ("requests", "tokens")
_MINUTE = 60.0
_DAY = 24 * 3600.0
_ROUNDING_S = 1e-6  # what numbers lose on the way


class Standing(NamedTuple):
    """Where a key stands with one of its limits."""

    unit: Unit
    limit: int
    num_left: int
    reset_s: float  # until all of it is there again


class Bucket:
    """A limit of so many units in a period, refilled as time passes."""

    def __init__(self, unit: Unit, limit: int, seconds: float, clock: Callable[[], float]) -> None:
        self.unit: Unit = unit
        self._limit = limit
        self._per_second = limit / seconds
        self._clock = clock
        self._level = float(limit)
        self._at = clock()

    def level(self) -> float:
        now = self._clock()
        self._level = min(self._limit, self._level + (now - self._at) * self._per_second)
        self._at = now
        return self._level

    def take(self, amount: int) -> None:
        self._level = self.level() - amount

    def wait_s(self) -> float:
        """How many seconds it takes until one more may be taken."""
        return max(0.0, (min(1, self._limit) - self.level()) / self._per_second)

    def standing(self) -> Standing:
        level = self.level()
        return Standing(self.unit, self._limit, max(0, math.floor(level)), (self._limit - level) / self._per_second)


class Limiter:
    """The limits of one key. Call it in the event loop."""

    def __init__(self, limits: KeyLimits, clock: Callable[[], float]) -> None:
        wanted: Iterable[tuple[Unit, int | None, float]] = (
            ("requests", limits.requests_per_minute, _MINUTE),
            ("requests", limits.requests_per_day, _DAY),
            ("tokens", limits.tokens_per_minute, _MINUTE),
            ("tokens", limits.tokens_per_day, _DAY),
        )
        self._buckets = [Bucket(unit, limit, seconds, clock) for unit, limit, seconds in wanted if limit]

    def admit(self) -> None:
        """One more request. Raises RateLimited, and it does not count."""
        wait_s, unit = max((bucket.wait_s(), bucket.unit) for bucket in self._buckets)
        if wait_s > _ROUNDING_S:
            raise RateLimited(unit, retry_after_s=math.ceil(wait_s))
        self._take("requests", 1)

    def charge(self, num_tokens: int) -> None:
        self._take("tokens", num_tokens)

    def standings(self) -> list[Standing]:
        """How far the limits of requests and of tokens are used up; of two limits the one that comes first."""
        found = [bucket.standing() for bucket in self._buckets]
        nearest = (min((one for one in found if one.unit == unit), default=None, key=_num_left) for unit in UNITS)
        return [standing for standing in nearest if standing is not None]

    def _take(self, unit: Unit, amount: int) -> None:
        for bucket in self._buckets:
            if bucket.unit == unit:
                bucket.take(amount)


def _num_left(standing: Standing) -> int:
    return standing.num_left


class RateLimits:
    """The limiters of all keys, each made when its key is first used. Names are the operator's, so there are few."""

    def __init__(self, table: LimitTable, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._clock = clock
        self._limiters: dict[str, Limiter | None] = {}

    def of(self, name: str) -> Limiter | None:
        """None: this key has no limits."""
        if name not in self._limiters:
            limits = self._table.of(name)
            self._limiters[name] = None if limits.are_none else Limiter(limits, self._clock)
        return self._limiters[name]


def openai_headers(standings: Iterable[Standing]) -> list[tuple[bytes, bytes]]:
    headers = []
    for unit, limit, num_left, reset_s in standings:
        for name, value in (("limit", str(limit)), ("remaining", str(num_left)), ("reset", duration(reset_s))):
            headers.append((f"x-ratelimit-{name}-{unit}".encode(), value.encode()))
    return headers


def duration(seconds: float) -> str:
    """A time as OpenAI writes it: `20ms`, `8.64s`, `6m0s`, `1h0m1s`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    if seconds < _MINUTE:
        return f"{seconds:.2f}".rstrip("0").rstrip(".") + "s"
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s"
