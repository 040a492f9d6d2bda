"""Everything that is kept, behind async methods: a write is on the disk when it returns.

Knows threads and the event loop; the SQL is in `objects.py`.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from proxy_inference_engine.store.checkpoints import Checkpoints
from proxy_inference_engine.store.database import connect, prepare
from proxy_inference_engine.store.objects import ITEM, Filter, Key, Objects, not_found
from proxy_inference_engine.store.readers import Reader, Readers
from proxy_inference_engine.store.record import ItemPage, Items, Kind, Order, Page, Past, Record, StoreLimits
from proxy_inference_engine.store.runs import Run
from proxy_inference_engine.store.writer import Writer

T = TypeVar("T")
_logger = logging.getLogger(__name__)
_DEFAULT_LIMITS = StoreLimits()


class Store:
    """Objects by owner. Another owner's ids are as unknown as those that never were."""

    folder: Path | None  # where the file is, for what else has to be kept; None: in memory

    def __init__(self, objects: Objects, writer: Writer, reader: Reader, folder: Path | None = None) -> None:
        self.folder = folder
        self._objects = objects
        self._writer = writer
        self._reader = reader
        self._run: Run | None = None

    @classmethod
    def open(
        cls,
        path: Path | None,
        *,
        limits: StoreLimits = _DEFAULT_LIMITS,
        clock: Callable[[], float] = time.time,
    ) -> "Store":
        """The store in the file `path`, made when it is not there; None: in memory. Raises StartupError."""
        if path is not None:
            prepare(path)
        objects = Objects(limits, clock)
        connecting = partial(connect, path, max_pages=limits.max_pages)
        if path is None:
            writer = Writer(connecting, objects.purge)
            return cls(objects, writer, writer)
        writer = Writer(connecting, objects.purge, Checkpoints(partial(connect, path)))
        store = cls(objects, writer, Readers(partial(connect, path)), path.parent)
        writer.submit(partial(store._begin_run, path)).result()
        return store

    def _begin_run(self, path: Path, connection: sqlite3.Connection) -> None:
        self._run = Run(path)
        num_failed = self._objects.fail_unfinished(connection, self._run.others())
        if num_failed:
            _logger.warning("responses were cut off by the last end", extra={"fields": {"failed": num_failed}})

    @property
    def max_bytes(self) -> int:
        """Of one object or item: `save` refuses what is larger."""
        return self._objects.max_bytes

    async def save(
        self, record: Record, *, conversation: str | None = None, items: Sequence[dict[str, Any]] = ()
    ) -> None:
        """Insert or replace; `items` are added to `conversation` in the same commit.

        Raises StoreError, QuotaExceeded, TooLarge, and NotFound when there is no such conversation.
        """
        run = "" if self._run is None else self._run.id

        def work(connection: sqlite3.Connection) -> None:
            self._objects.put(connection, record, run)
            if conversation is not None:
                self._add(connection, record.owner, conversation, items)

        await _acknowledged(self._writer.submit(work))

    async def load(self, kind: Kind, owner: str, id: str) -> Record | None:
        def work(connection: sqlite3.Connection) -> Record | None:
            row = self._objects.get(connection, Key(kind, owner, id))
            return None if row is None else row.record(kind)

        return await _acknowledged(self._reader.submit(work))

    async def past(self, kind: Literal["response", "conversation"], owner: str, id: str) -> Past | None:
        """All that what comes next builds on; None: there is no such object, or not all of it. Raises
        ContextLengthExceeded where it is more than can be read.
        """
        return await _acknowledged(self._reader.submit(lambda c: self._objects.past(c, Key(kind, owner, id))))

    async def change_metadata(
        self, kind: Kind, owner: str, id: str, metadata: Mapping[str, str]
    ) -> dict[str, Any] | None:
        """The changed object; None: there is none to change."""
        key = Key(kind, owner, id)
        return await _acknowledged(self._writer.submit(lambda c: self._objects.change_metadata(c, key, metadata)))

    async def delete(self, kind: Kind, owner: str, id: str) -> bool:
        """Whether there was such an object. A conversation's items go with it."""
        return await _acknowledged(self._writer.submit(lambda c: self._objects.remove(c, Key(kind, owner, id))))

    async def list(
        self,
        kind: Kind,
        owner: str,
        *,
        after: str | None = None,
        limit: int = 20,
        order: Order = "desc",
        model: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Page:
        """In the order they were first saved. Raises NotFound when `after` is unknown."""
        wanted = Filter(after, limit, order, model, metadata)

        def work(connection: sqlite3.Connection) -> Page:
            rows, has_more = self._objects.page(connection, Key(kind, owner, ""), wanted)
            return Page([row.record(kind) for row in rows], has_more)

        return await _acknowledged(self._reader.submit(work))

    async def add_items(self, owner: str, conversation_id: str, items: Items) -> None:
        """At the end of a conversation, all or none; an item with a known id is replaced. Raises as `save` does."""
        await _acknowledged(self._writer.submit(lambda c: self._add(c, owner, conversation_id, items)))

    def _add(
        self, connection: sqlite3.Connection, owner: str, conversation_id: str, items: Sequence[dict[str, Any]]
    ) -> None:
        self._objects.touch(connection, Key("conversation", owner, conversation_id))
        for item in items:
            self._objects.put_item(connection, owner, conversation_id, item)

    async def list_items(
        self, owner: str, conversation_id: str, *, after: str | None = None, limit: int = 20, order: Order = "asc"
    ) -> ItemPage:
        """In the order they were added. Raises NotFound, also when `after` is unknown."""
        wanted = Filter(after, limit, order)

        def work(connection: sqlite3.Connection) -> ItemPage:
            if self._objects.get(connection, Key("conversation", owner, conversation_id)) is None:
                raise not_found(conversation_id)
            rows, has_more = self._objects.page(connection, Key(ITEM, owner, "", conversation_id), wanted)
            return ItemPage([row.item() for row in rows], has_more)

        return await _acknowledged(self._reader.submit(work))

    async def load_item(self, owner: str, conversation_id: str, item_id: str) -> dict[str, Any] | None:
        def work(connection: sqlite3.Connection) -> dict[str, Any] | None:
            if self._objects.get(connection, Key("conversation", owner, conversation_id)) is None:
                return None
            row = self._objects.get(connection, Key(ITEM, owner, item_id, conversation_id))
            return None if row is None else row.item()

        return await _acknowledged(self._reader.submit(work))

    async def delete_item(self, owner: str, conversation_id: str, item_id: str) -> bool:
        key = Key(ITEM, owner, item_id, conversation_id)
        return await _acknowledged(self._writer.submit(lambda c: self._objects.remove(c, key)))

    def close(self) -> None:
        """What was begun is finished first; later calls raise StoreError."""
        self._reader.close()
        self._writer.close()
        if self._run is not None:
            self._run.end()


async def _acknowledged(future: Future[T]) -> T:
    """A caller that is cancelled does not take its write with it."""
    return await asyncio.shield(asyncio.wrap_future(future))
