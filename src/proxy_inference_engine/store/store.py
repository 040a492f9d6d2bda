"""Everything that is kept, behind async methods: a write is on the disk when it returns.

Knows threads and the event loop; the SQL is in `objects.py`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from proxy_inference_engine.errors import StartupError, StoreError
from proxy_inference_engine.store.database import Database, Run, StoreConnection
from proxy_inference_engine.store.files import FileFolder
from proxy_inference_engine.store.objects import ITEM, Filter, Key, Objects, not_found
from proxy_inference_engine.store.orphans import UNFINISHED, adopt_batches, fail_orphans, give_up, unfinished_runs
from proxy_inference_engine.store.readers import Reader, Readers
from proxy_inference_engine.store.record import ItemPage, Items, ObjectKind, Order, Page, Past, Record, StoreLimits
from proxy_inference_engine.store.row import StoredRow
from proxy_inference_engine.store.said import (
    NewFrames,
    ResponseId,
    RunNews,
    SaidSoFar,
    add_said,
    ask_to_cancel,
    read_said,
)
from proxy_inference_engine.store.sqlite.database import SqliteDatabase
from proxy_inference_engine.store.usage import KeyUsage, add_usage, read_usage
from proxy_inference_engine.store.writer import StoreWriter

T = TypeVar("T")
_logger = logging.getLogger(__name__)
_DEFAULT_LIMITS = StoreLimits()
_SCHEMES = ("postgresql://", "postgres://")


class Store:
    """Objects by owner. Another owner's ids are as unknown as those that never were."""

    def __init__(
        self, objects: Objects, writer: StoreWriter, reader: Reader, run: Run | None, files: FileFolder
    ) -> None:
        """`run`: of this process; None: no other process can use the store. `files`: what is not in the database."""
        self.files = files
        self._objects = objects
        self._writer = writer
        self._reader = reader
        self._run = run
        self.on_saved: Callable[[float], None] | None = None  # hears when a save began, once it is done

    @classmethod
    def open(
        cls,
        where: Path | str | None,
        *,
        limits: StoreLimits = _DEFAULT_LIMITS,
        clock: Callable[[], float] = time.time,
        files: Path | None = None,
    ) -> "Store":
        """The store in a file, or at a URL, made when it is not there; None: in memory. Raises StartupError.

        `files`: the folder of files; None: beside the store's own, or where that is elsewhere, until the process ends.
        """
        folder = FileFolder(where.parent / "files" if isinstance(where, Path) else files, limits.files)
        database = _database(where, limits)
        database.prepare()
        objects, run = Objects(limits, clock), database.run
        if run is None:
            writer = StoreWriter(database, objects.purge)
            return cls(objects, writer, writer, None, folder)
        writer = StoreWriter(database, partial(_tidy, objects, run), partial(_is_untidy, objects, run))
        try:
            writer.submit(partial(_begin, run)).result()
        except BaseException:
            writer.close()
            raise
        return cls(objects, writer, Readers(database), run, folder)

    @property
    def max_bytes(self) -> int:
        """How large one object or item may be: `save` refuses what is larger."""
        return self._objects.max_bytes

    async def save(
        self, record: Record, *, conversation: str | None = None, items: Sequence[dict[str, Any]] = ()
    ) -> None:
        """Insert or replace an object; `items` are added to `conversation` in the same commit.

        Raises StoreError, QuotaExceeded, TooLarge, and NotFound when there is no such conversation.
        """
        began = time.monotonic()

        def work(connection: StoreConnection) -> None:
            self._objects.put(connection, record, self._run_id)
            if conversation is not None:
                self._add(connection, record.owner, conversation, items)

        await _acknowledged(self._writer.submit(work, owners=[record.owner]))
        if self.on_saved is not None:
            self.on_saved(began)

    async def load(self, kind: ObjectKind, owner: str, id: str) -> Record | None:
        """Raises StorageCorrupt."""

        def work(connection: StoreConnection) -> tuple[Record | None, bool]:
            row = self._objects.get(connection, Key(kind, owner, id))
            if row is None:
                return None, False
            return row.record(kind), self._is_orphan(connection, row.status, row.run)

        record, is_orphan = await _acknowledged(self._reader.submit(work))
        if is_orphan:
            with suppress(StoreError):  # where nothing can be written, it is shown as it is
                await self._fail_orphans()
            record, _ = await _acknowledged(self._reader.submit(work))
        return record

    def _is_orphan(self, connection: StoreConnection, status: str, run: str) -> bool:
        return self._run is not None and status in UNFINISHED and self._run.is_dead(connection, run)

    async def _fail_orphans(self) -> int:
        run = self._run
        if run is None:
            return 0
        return await _acknowledged(self._writer.submit(lambda c: _fail(c, run)))

    async def past(self, kind: Literal["response", "conversation"], owner: str, id: str) -> Past | None:
        """All that a response to this object builds on; None: there is no such object, or not all of it. Raises
        ContextLengthExceeded where it is more than can be read, and StorageCorrupt.
        """

        def work(connection: StoreConnection) -> Past | None:
            return self._objects.past(connection, Key(kind, owner, id))

        past = await _acknowledged(self._reader.submit(work))
        if past is not None and past.status in UNFINISHED and await self._fail_orphans():
            past = await _acknowledged(self._reader.submit(work))
        return past

    async def change_metadata(
        self, kind: ObjectKind, owner: str, id: str, metadata: Mapping[str, str]
    ) -> dict[str, Any] | None:
        """The changed object; None: there is none to change."""
        key = Key(kind, owner, id)
        return await _acknowledged(
            self._writer.submit(lambda c: self._objects.change_metadata(c, key, metadata), owners=[owner])
        )

    async def change(self, kind: ObjectKind, owner: str, id: str, change: Callable[[Record], Record]) -> Record | None:
        """An object replaced by what `change` makes of it, whoever else changes it; None: there is none to change.

        `change` runs in the thread that writes. Raises StoreError, TooLarge and StorageCorrupt.
        """
        key = Key(kind, owner, id)
        return await _acknowledged(self._writer.submit(lambda c: self._objects.change(c, key, change), owners=[owner]))

    async def adopt_batches(self) -> list[tuple[str, str]]:
        """Owner and id of batches that were left behind by processes that are gone: they are this one's now.

        Those whose files are on another machine are left to it.
        """
        run = self._run
        if run is None:
            return []

        def is_here(owner: str, file_id: str) -> bool:
            return self.files.path(owner, file_id).exists()

        return await _acknowledged(self._writer.submit(lambda c: adopt_batches(c, run.id, run.alive(c), is_here)))

    async def delete(self, kind: ObjectKind, owner: str, id: str) -> bool:
        """Whether there was such an object. A conversation's items go with it."""
        return await self._remove(Key(kind, owner, id))

    async def list(
        self,
        kind: ObjectKind,
        owner: str,
        *,
        after: str | None = None,
        limit: int = 20,
        order: Order = "desc",
        model: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Page:
        """Objects in the order they were first saved; fewer than `limit` where they are large.

        Raises NotFound when `after` is unknown.
        """
        wanted = Filter(after, limit, order, model, metadata)

        def work(connection: StoreConnection) -> Page:
            return Page(*self._objects.page(connection, Key(kind, owner, ""), wanted, lambda row: row.record(kind)))

        return await _acknowledged(self._reader.submit(work))

    async def add_items(self, owner: str, conversation_id: str, items: Items) -> None:
        """Add all items at the end of a conversation, or none; an item with a known id is replaced.

        Raises StoreError, QuotaExceeded, TooLarge, and NotFound when there is no such conversation.
        """
        await _acknowledged(self._writer.submit(lambda c: self._add(c, owner, conversation_id, items), owners=[owner]))

    def _add(
        self, connection: StoreConnection, owner: str, conversation_id: str, items: Sequence[dict[str, Any]]
    ) -> None:
        self._objects.touch(connection, Key("conversation", owner, conversation_id))
        for item in items:
            self._objects.put_item(connection, owner, conversation_id, item)

    async def list_items(
        self, owner: str, conversation_id: str, *, after: str | None = None, limit: int = 20, order: Order = "asc"
    ) -> ItemPage:
        """Items in the order they were added; fewer than `limit` where they are large.

        Raises NotFound, also when `after` is unknown.
        """
        wanted = Filter(after, limit, order)

        def work(connection: StoreConnection) -> ItemPage:
            if self._objects.get(connection, Key("conversation", owner, conversation_id)) is None:
                raise not_found(conversation_id)
            return ItemPage(
                *self._objects.page(connection, Key(ITEM, owner, "", conversation_id), wanted, StoredRow.item)
            )

        return await _acknowledged(self._reader.submit(work))

    async def load_item(self, owner: str, conversation_id: str, item_id: str) -> dict[str, Any] | None:
        def work(connection: StoreConnection) -> dict[str, Any] | None:
            if self._objects.get(connection, Key("conversation", owner, conversation_id)) is None:
                return None
            row = self._objects.get(connection, Key(ITEM, owner, item_id, conversation_id))
            return None if row is None else row.item()

        return await _acknowledged(self._reader.submit(work))

    async def delete_item(self, owner: str, conversation_id: str, item_id: str) -> bool:
        return await self._remove(Key(ITEM, owner, item_id, conversation_id))

    async def add_usage(self, usage: Mapping[str, KeyUsage]) -> None:
        await _acknowledged(self._writer.submit(lambda c: add_usage(c, usage), owners=()))

    async def usage(self) -> dict[str, KeyUsage]:
        """What every key has used, on all servers of this store."""
        return await _acknowledged(self._reader.submit(read_usage))

    async def _remove(self, key: Key) -> bool:
        return await _acknowledged(
            self._writer.submit(lambda c: self._objects.remove(c, key), owners=[key.owner], frees=True)
        )

    async def add_said(self, news: Mapping[ResponseId, NewFrames]) -> RunNews:
        """What responses of this server have said; and which of them are still there, or cancelled elsewhere."""
        return await _acknowledged(self._writer.submit(lambda c: add_said(c, self._run_id, news), owners=()))

    async def said(self, owner: str, id: str, first: int) -> SaidSoFar | None:
        """What a response has said so far, wherever it is made. Empty when it is stored as a whole; None: there is no
        such response.
        """
        which = ResponseId(owner, id)

        def work(connection: StoreConnection) -> tuple[SaidSoFar | None, bool]:
            said, run = read_said(connection, which, first) or (None, "")
            return said, said is not None and self._is_orphan(connection, said.status, run)

        said, is_orphan = await _acknowledged(self._reader.submit(work))
        if is_orphan and await self._fail_orphans():
            said, _ = await _acknowledged(self._reader.submit(work))
        return said

    async def ask_to_cancel(self, owner: str, id: str) -> None:
        """The server that makes it learns of it when it next stores what was said."""
        which = ResponseId(owner, id)
        await _acknowledged(self._writer.submit(lambda c: ask_to_cancel(c, which), owners=[owner]))

    async def give_up(self, owner: str, id: str) -> None:
        """A response whose end could not be stored has failed, for all who see only the store."""
        which = ResponseId(owner, id)
        await _acknowledged(self._writer.submit(lambda c: give_up(c, *which), owners=[owner]))

    def secret(self, name: str, fresh: bytes) -> bytes:
        """A secret that all servers on this store share: `fresh` where there was none. Raises StoreError; waits."""

        def work(connection: StoreConnection) -> bytes:
            connection.execute("INSERT INTO secrets VALUES (?, ?) ON CONFLICT DO NOTHING", (name, fresh))
            (value,) = connection.execute("SELECT value FROM secrets WHERE name = ?", (name,)).fetchone()
            return bytes(value)

        return self._writer.submit(work, owners=()).result()

    @property
    def _run_id(self) -> str:
        return "" if self._run is None else self._run.id

    def close(self) -> None:
        """Finish what was begun, then let go of the database; later calls raise StoreError."""
        self._reader.close()
        self._writer.close()


def _database(where: Path | str | None, limits: StoreLimits) -> Database:
    if not isinstance(where, str):
        return SqliteDatabase(where, limits.max_pages)
    if not where.startswith(_SCHEMES):
        raise StartupError("PIE_STORE_URL cannot be read: postgresql://user@host/database is expected")
    try:
        # Nothing of it is needed, or has to be installed, for a file.
        from proxy_inference_engine.store.postgres.database import PostgresDatabase
    except ImportError as error:
        raise StartupError(
            f"a store at a URL needs psycopg ({error}): pip install 'proxy-inference-engine[postgres]'"
        ) from None
    return PostgresDatabase(where, num_connections=limits.num_connections, run_seconds=limits.run_seconds)


def _begin(run: Run, connection: StoreConnection) -> None:
    run.begin(connection)
    _fail(connection, run)


def _fail(connection: StoreConnection, run: Run) -> int:
    num_failed = fail_orphans(connection, run.alive(connection))
    if num_failed:
        _logger.warning("responses were cut off by the end of their server", extra={"fields": {"failed": num_failed}})
    return num_failed


def _is_untidy(objects: Objects, run: Run, connection: StoreConnection) -> bool:
    others = unfinished_runs(connection) - {run.id}
    return objects.has_expired(connection) or any(run.is_dead(connection, each) for each in others)


def _tidy(objects: Objects, run: Run, connection: StoreConnection) -> bool:
    """Fail what servers left behind that are gone, and remove what is outdated. True: there may be more to do."""
    if unfinished_runs(connection) - {run.id}:
        _fail(connection, run)
    return objects.purge(connection)


async def _acknowledged(future: Future[T]) -> T:
    """Wait for work in another thread. A caller that is cancelled does not take its write with it."""
    return await asyncio.shield(asyncio.wrap_future(future))
