"""What the store needs of a database: connections, transactions, and what its errors mean. Two have it.

Knows neither of them: SQLite is in `sqlite/`, PostgreSQL in `postgres/`. The SQL of the rest is what both understand.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from proxy_inference_engine.errors import StoreError

_logger = logging.getLogger(__name__)
Values = Sequence[Any] | Mapping[str, Any]


class Rows(Protocol):
    """What a statement found, or how many rows it changed."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class StoreConnection(Protocol):
    """A connection, in autocommit until a transaction begins. Values stand for `?`, or for `:name`."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, sql: str, parameters: Values = ..., /) -> Rows: ...

    def executemany(self, sql: str, parameters: Sequence[Values], /) -> Rows: ...

    def close(self) -> None: ...


class Run(Protocol):
    """One process's use of a database, from its start to its end, however that comes. Call it in a transaction."""

    id: str

    def begin(self, connection: StoreConnection) -> None: ...

    def alive(self, connection: StoreConnection) -> set[str]:
        """This run, and the others that are not known to be dead. What the dead left behind is removed."""
        ...

    def is_dead(self, connection: StoreConnection, id_: str) -> bool:
        """Whether a run that has written something, so that it had begun, is gone. Needs no transaction."""
        ...


class Database(Protocol):
    """Where the tables are. Used by one writing thread and by those that read; only `connect` by all of them."""

    num_readers: int
    tidy_seconds: float  # between two looks at what has to be tidied

    @property
    def run(self) -> Run | None:
        """This process's run. None: no other process can use the database."""
        ...

    def prepare(self) -> None:
        """Leave whole tables of our version. Raises StartupError when that cannot be."""
        ...

    def connect(self, *, reads: bool = False) -> StoreConnection:
        """`reads`: it only does that."""
        ...

    def is_lost(self, connection: StoreConnection) -> bool:
        """Whether a connection will never work again; another may."""
        ...

    def begin(self, connection: StoreConnection, owners: Collection[str] | None) -> None:
        """A transaction that changes what belongs to these owners, and nobody else does meanwhile. None: anybody's."""
        ...

    def batch(self, connection: StoreConnection) -> AbstractContextManager[None]:
        """Wraps statements of a transaction: none has to be answered before the next is sent, unless it is read."""
        ...

    def commit(self, connection: StoreConnection) -> None:
        """What was written is on the disk when it returns."""
        ...

    @property
    def may_tidy(self) -> bool: ...

    def tidying(self, connection: StoreConnection) -> AbstractContextManager[None]:
        """Wraps a transaction that may be lost: it tidies, and would be done again."""
        ...

    def recover(self, connection: StoreConnection, error: Exception, *, frees: bool) -> bool:
        """Go on after writes failed and were rolled back: whether they may succeed now. `frees`: they only delete."""
        ...

    def is_of_one(self, error: Exception) -> bool:
        """Whether one write of a group can have caused it alone. Anything else would happen to each of them."""
        ...

    def shown(self, error: Exception) -> Exception:
        """What a caller is told about a failed statement; the cause goes to the log."""
        ...

    def close(self, connection: StoreConnection | None) -> None:
        """The end, with the connection that wrote, where there was one."""
        ...


def broken(reason: str) -> StoreError:
    _logger.warning("the store failed", extra={"fields": {"reason": reason}})
    return StoreError("The server's storage does not work at the moment; store: false works without it.")


def full(reason: str) -> StoreError:
    _logger.warning("the store failed", extra={"fields": {"reason": reason}})
    return StoreError(
        "The server has no room left to store this; delete stored objects, or send store: false.", code="storage_full"
    )
