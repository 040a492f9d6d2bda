"""PostgreSQL: a database that many servers share. What one of them writes is locked for the others, owner by owner.

Knows connections, locks and errors, nothing of the objects inside.
"""

import hashlib
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from typing import Final

import psycopg
from psycopg import errors

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.store.database import StoreConnection, broken, full
from proxy_inference_engine.store.migrations import POSTGRES, Dialect, migrate
from proxy_inference_engine.store.postgres.connection import PostgresConnection, Watchdog
from proxy_inference_engine.store.postgres.run import RenewedRun

CONNECT_SECONDS = 5
STATEMENT_SECONDS = 10.0
LOCK_SECONDS = 5.0  # another server may hold what is to be written this long before a write fails
_IDLE_SECONDS = 10.0  # a server that stops in the middle of a transaction holds its locks this long
_WATCH_SECONDS = 5.0  # after which a statement that should have been ended has not been
_WHOLE, _TABLES = 1, 2  # the locks that are no owner's
# What one write of a group can cause alone.
_OF_ONE = (errors.DataError, errors.IntegrityError, errors.ProgramLimitExceeded, errors.DiskFull)
_NEXT_TIME = (errors.DeadlockDetected, errors.SerializationFailure)
# A commit is acknowledged when it is on the disk, whatever the database does for others.
SETTINGS: Final = (
    f"SET statement_timeout = '{STATEMENT_SECONDS:g}s'; SET lock_timeout = '{LOCK_SECONDS:g}s'; "
    f"SET idle_in_transaction_session_timeout = '{_IDLE_SECONDS:g}s'; "
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)


class PostgresDatabase:
    """The database at `url`, with one connection that writes and some that read."""

    def __init__(self, url: str, *, num_connections: int = 5, run_seconds: float = 15.0) -> None:
        self.num_readers = max(1, num_connections - 1)
        self.run = RenewedRun(run_seconds)
        self.tidy_seconds = run_seconds / 3
        self._url = url
        self._watchdog = Watchdog(STATEMENT_SECONDS + _WATCH_SECONDS)

    def prepare(self) -> None:
        try:
            with closing(self._connected()) as connection:
                (encoding,) = connection.execute("SHOW server_encoding").fetchone() or ("",)
                if encoding != "UTF8":
                    raise StartupError(f"cannot use the store at {self.name}: its encoding is {encoding}, not UTF8")
                migrate(connection, _DIALECT)
        except psycopg.Error as error:
            raise StartupError(f"cannot use the store at {self.name}: {_reason(error)}") from None

    @property
    def name(self) -> str:
        """Where it is, without the password. Raises StartupError."""
        try:
            given = psycopg.conninfo.conninfo_to_dict(self._url)
        except psycopg.Error:  # whose text has all of it
            raise StartupError("PIE_STORE_URL cannot be read: postgresql://user@host/database is expected") from None
        place = given.get("host") or given.get("hostaddr") or "this machine"
        return f"{place}, database {given.get('dbname') or given.get('user') or 'of this user'}"

    def _connected(self) -> PostgresConnection:
        raw = psycopg.connect(
            self._url,
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            client_encoding="UTF8",
            fallback_application_name="pie",
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
        )
        return PostgresConnection(raw)

    def connect(self, *, reads: bool = False) -> PostgresConnection:
        connection = self._connected()
        try:
            connection.run(SETTINGS + ("; SET default_transaction_read_only = on" if reads else ""))
        except BaseException:
            connection.close()
            raise
        self._watchdog.watch(connection)
        return connection

    def is_lost(self, connection: StoreConnection) -> bool:
        assert isinstance(connection, PostgresConnection)
        return connection.is_lost

    def begin(self, connection: StoreConnection, owners: Collection[str] | None) -> None:
        """Locks are taken in one order by all, so that no two wait for each other."""
        assert isinstance(connection, PostgresConnection)
        if owners is None:
            connection.run(f"BEGIN; SELECT pg_advisory_xact_lock({_WHOLE})")
        else:
            own = "".join(f"; SELECT pg_advisory_xact_lock({lock})" for lock in sorted(map(lock_of, owners)))
            connection.run(f"BEGIN; SELECT pg_advisory_xact_lock_shared({_WHOLE}){own}")
        if self.run.is_due:
            self.run.renew(connection)

    def batch(self, connection: StoreConnection) -> AbstractContextManager[None]:
        assert isinstance(connection, PostgresConnection)
        return connection.pipelined()

    def commit(self, connection: StoreConnection) -> None:
        assert isinstance(connection, PostgresConnection)
        connection.commit()

    @property
    def may_tidy(self) -> bool:
        return True

    @contextmanager
    def tidying(self, connection: StoreConnection) -> Iterator[None]:
        yield

    def recover(self, connection: StoreConnection, error: Exception, *, frees: bool) -> bool:
        if isinstance(error, errors.ReadOnlySqlTransaction):
            connection.close()  # another machine may be the one that writes by now: the next connection finds it
        return isinstance(error, (*_NEXT_TIME, errors.ReadOnlySqlTransaction))

    def is_of_one(self, error: Exception) -> bool:
        return not isinstance(error, psycopg.Error) or isinstance(error, _OF_ONE)

    def shown(self, error: Exception) -> Exception:
        if not isinstance(error, psycopg.Error):
            return error
        return (full if isinstance(error, errors.DiskFull) else broken)(_reason(error))

    def close(self, connection: StoreConnection | None) -> None:
        if connection is not None:
            with suppress(psycopg.Error):
                self.run.end(connection)
            connection.close()
        self._watchdog.close()


def lock_of(owner: str) -> int:
    return int.from_bytes(hashlib.blake2b(owner.encode("utf-8", "surrogatepass"), digest_size=8).digest(), signed=True)


def _reason(error: psycopg.Error) -> str:
    """What the database said, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _begin_alone(connection: StoreConnection) -> None:
    assert isinstance(connection, PostgresConnection)
    connection.run(f"BEGIN; SELECT pg_advisory_xact_lock({_TABLES})")


def _run_script(connection: StoreConnection, script: str) -> None:
    assert isinstance(connection, PostgresConnection)
    connection.run(script)


_DIALECT = Dialect(POSTGRES, _begin_alone, _run_script)
