"""Which servers use a PostgreSQL database now. Each renews its row again and again; one that no longer does is dead.

The database's clock is the only one. A server that could not reach it for a while says of nobody that he is dead until
all have had the time to renew: else the first to come back after an outage would take the others for dead.
"""

import secrets
import time
from collections.abc import Callable

from proxy_inference_engine.store.database import StoreConnection

_NOW = "extract(epoch FROM clock_timestamp())"


class RenewedRun:
    """`max_seconds`: how long one may give no sign of life."""

    def __init__(self, max_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.id = secrets.token_hex(8)
        self.max_seconds = max_seconds
        self._clock = clock
        self._renewed_at = float("-inf")
        self._steady_since = float("inf")

    def begin(self, connection: StoreConnection) -> None:
        self.renew(connection)

    @property
    def is_due(self) -> bool:
        return self._clock() - self._renewed_at > self.max_seconds / 4

    def renew(self, connection: StoreConnection) -> None:
        """Say that this run lives, in the transaction of a write: whatever is written is of a run that lives."""
        connection.execute(
            f"INSERT INTO runs VALUES (?, {_NOW}) ON CONFLICT (id) DO UPDATE SET renewed_at = excluded.renewed_at",
            (self.id,),
        )
        now = self._clock()
        if now - self._renewed_at > self.max_seconds:
            self._steady_since = now
        self._renewed_at = now

    def alive(self, connection: StoreConnection) -> set[str]:
        if self._is_steady:
            connection.execute(
                f"DELETE FROM runs WHERE id <> ? AND renewed_at < {_NOW} - ?", (self.id, self.max_seconds)
            )
        return {self.id, *(id_ for (id_,) in connection.execute("SELECT id FROM runs"))}

    def is_dead(self, connection: StoreConnection, id_: str) -> bool:
        if id_ == self.id:
            return False
        found = connection.execute(f"SELECT renewed_at < {_NOW} - ? FROM runs WHERE id = ?", (self.max_seconds, id_))
        (is_late,) = found.fetchone() or (None,)
        return is_late is None or (is_late and self._is_steady)

    @property
    def _is_steady(self) -> bool:
        now = self._clock()
        return now - self._renewed_at <= self.max_seconds <= now - self._steady_since

    def end(self, connection: StoreConnection) -> None:
        connection.execute("DELETE FROM runs WHERE id = ?", (self.id,))
