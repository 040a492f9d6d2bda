"""The table of objects, in SQL: written, read, listed in pages, deleted, expired.

Items of a conversation are rows with a parent. Each method runs inside a transaction of its caller.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, TypeVar

from proxy_inference_engine.errors import NotFound, QuotaExceeded, StorageCorrupt, StoreError, TooLarge
from proxy_inference_engine.store.chains import FOREVER, LAST_PLACE, has_turn, history, let_go, thread
from proxy_inference_engine.store.content import encode, encode_text
from proxy_inference_engine.store.database import StoreConnection
from proxy_inference_engine.store.orphans import GIVEN_UP
from proxy_inference_engine.store.record import NUM_EARLIER, Link, ObjectKind, Order, Past, Record, StoreLimits
from proxy_inference_engine.store.row import COLUMNS, StoredRow

T = TypeVar("T")

ITEM: Final = "item"
CURSOR_SECONDS = 3600.0  # a page may continue after an object for this long after it was deleted
PURGED_ROWS = 25  # at a time, so that writes never wait long
_BATCH_ROWS = 16
MAX_PAGE_BYTES = 8 * 1024 * 1024  # of a list: a page that has as much ends before its limit


class Key(NamedTuple):
    """What one object is found by. An owner is part of it: there is no way to reach another's."""

    kind: ObjectKind | Literal["item"]
    owner: str
    id: str
    parent: str = ""


class Filter(NamedTuple):
    """Which part of a list is wanted."""

    after: str | None = None
    limit: int = 20
    order: Order = "desc"
    model: str | None = None
    metadata: Mapping[str, str] | None = None


class Objects:
    def __init__(self, limits: StoreLimits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self._clock = clock

    @property
    def max_bytes(self) -> int:
        return self.limits.max_bytes

    def put(self, connection: StoreConnection, record: Record, run: str) -> None:
        """Insert or replace. What was deleted stays deleted: a late write does not bring it back."""
        record = self._whole(connection, record)
        key = Key(record.kind, record.owner, record.id)
        model, metadata = record.body.get("model"), record.body.get("metadata")
        turn = None if record.turn is None else encode(record.turn)
        body, extra = encode(record.body), encode(record.extra)
        self._check_size(len(body) + len(extra) + len(turn or b""))
        previous, place = record.link or (None, None)
        self._write(
            connection,
            key,
            created_at=record.created_at,
            expires_at=record.expires_at or self._clock() + self.limits.ttl_seconds,
            status=record.status,
            run=run,
            model=model if isinstance(model, str) else None,
            metadata=encode_text(metadata if isinstance(metadata, dict) else {}),
            previous=previous,
            place=place,
            turn=turn,
            body=body,
            extra=extra,
        )

    def _whole(self, connection: StoreConnection, record: Record) -> Record:
        """A response whose history was deleted while it was being made holds that history itself."""
        link, earlier = record.link, record.earlier
        if link is None or link.place is not None or earlier is None or has_turn(connection, record.owner, link.id):
            return record
        turn = [*earlier, *(record.turn or ())]
        extra = {**record.extra, NUM_EARLIER: len(earlier)}
        return replace(record, turn=turn, link=None, extra=extra)

    def put_item(self, connection: StoreConnection, owner: str, parent: str, item: Mapping[str, Any]) -> None:
        """Insert an item at the end of a conversation, or replace it in its place."""
        key = Key(ITEM, owner, item["id"], parent)
        body = encode(item)
        if len(body) > self.max_bytes:
            raise item_too_large(self.max_bytes)
        connection.execute(f"DELETE FROM objects WHERE {_IS_KEY} AND body IS NULL", key._asdict())
        self._write(
            connection,
            key,
            created_at=int(self._clock()),
            expires_at=FOREVER,  # it lives as long as its conversation
            status="",
            run="",
            model=None,
            metadata="{}",
            previous=None,
            place=None,
            turn=None,
            body=body,
            extra=b"{}",
        )

    def _write(self, connection: StoreConnection, key: Key, **values: object) -> None:
        """The quota is of rows that are new: more of them afterwards than before."""
        given = {**key._asdict(), **values, "now": self._clock(), "given_up": GIVEN_UP}
        count = "SELECT num_rows FROM owners WHERE owner = ?"
        before = connection.execute(count, (key.owner,))
        written = connection.execute(_UPSERT, given)
        after = connection.execute(count, (key.owner,))
        (num_before,), (num_after,) = before.fetchone() or (0,), after.fetchone() or (0,)
        if num_before < num_after > self.limits.max_rows:
            raise QuotaExceeded(
                f"This key keeps {self.limits.max_rows} stored objects and items, as many as it may: "
                "delete some, or send store: false."
            )
        if not written.rowcount:
            self._check_given_up(connection, key)

    def _check_given_up(self, connection: StoreConnection, key: Key) -> None:
        """Raises StoreError for a response that another server has failed: nobody may hear that it was completed."""
        row = self.get(connection, key)
        if row is not None and row.run == GIVEN_UP:
            raise StoreError("The server's storage was out of reach for too long; the response was given up.")

    def _check_size(self, num_bytes: int) -> None:
        if num_bytes > self.max_bytes:
            raise too_large(self.max_bytes)

    def change_metadata(
        self, connection: StoreConnection, key: Key, metadata: Mapping[str, str]
    ) -> dict[str, Any] | None:
        """Give an object other metadata, with which its time begins anew; None: there is no such object."""
        row = self.get(connection, key)
        if row is None:
            return None
        body = {**row.item(), "metadata": dict(metadata)}
        data = encode(body)
        self._check_size(len(data) + len(row.extra) + len(row.turn or b""))
        connection.execute(
            f"UPDATE objects SET body=:body, metadata=:metadata, expires_at=:expires_at WHERE {_IS_KEY}",
            {
                **key._asdict(),
                "body": data,
                "metadata": encode_text(metadata),
                "expires_at": self._clock() + self.limits.ttl_seconds,
            },
        )
        return body

    def change(self, connection: StoreConnection, key: Key, change: Callable[[Record], Record]) -> Record | None:
        """Replace an object by what `change` makes of it; None: there is no such object. Raises StorageCorrupt."""
        row = self.get(connection, key)
        if row is None or key.kind == ITEM:
            return None
        record = change(row.record(key.kind))
        self.put(connection, record, row.run)
        return record

    def past(self, connection: StoreConnection, key: Key) -> Past | None:
        """What follows a response, or the last item of a conversation, builds on. None: it is not there.

        Raises ContextLengthExceeded.
        """
        now = self._clock()
        given = {**key._asdict(), "now": now}
        found = connection.execute(f"SELECT status FROM objects WHERE {_IS_KEY} AND {_IS_LIVE}", given).fetchone()
        if found is None:
            return None
        if key.kind == "conversation":
            return Past(*thread(connection, key.owner, key.id))
        items = history(connection, key.owner, key.id, now)
        return None if items is None else Past(items, Link(key.id), found[0])

    def touch(self, connection: StoreConnection, key: Key) -> None:
        """The object lives its whole time again. Raises NotFound."""
        expires_at = self._clock() + self.limits.ttl_seconds
        changed = connection.execute(
            f"UPDATE objects SET expires_at=:expires_at WHERE {_IS_KEY} AND {_IS_LIVE}",
            {**key._asdict(), "expires_at": expires_at, "now": self._clock()},
        )
        if not changed.rowcount:
            raise not_found(key.id)

    def get(self, connection: StoreConnection, key: Key) -> StoredRow | None:
        given = {**key._asdict(), "now": self._clock()}
        found = connection.execute(f"SELECT {COLUMNS} FROM objects WHERE {_IS_KEY} AND {_IS_LIVE}", given).fetchone()
        return None if found is None else StoredRow(*found)

    def remove(self, connection: StoreConnection, key: Key) -> bool:
        """Empties the row, which keeps its place for a while; a conversation's items go at once."""
        now = self._clock()
        given = {**key._asdict(), "now": now}
        found = connection.execute(f"SELECT seq FROM objects WHERE {_IS_KEY} AND {_IS_LIVE}", given).fetchone()
        if found is None:
            return False
        let_go(connection, found[0], PURGED_ROWS, until=now + CURSOR_SECONDS)
        if key.kind == "conversation":
            connection.execute(f"DELETE FROM objects WHERE {_IS_CHILD}", {"owner": key.owner, "parent": key.id})
        return True

    def page(
        self, connection: StoreConnection, key: Key, wanted: Filter, read: Callable[[StoredRow], T]
    ) -> tuple[list[T], bool, int]:
        """What `read` makes of the rows of a list, in the order they were first written; whether there are more; and
        how many bytes these had.

        What is damaged is left out, so that the rest can be read. `key.id` does not matter. Raises NotFound when there
        is nothing that `after` could mean.
        """
        page: list[T] = []
        num_bytes = 0
        for row in self._find(connection, key, wanted):
            if len(page) == wanted.limit or (page and num_bytes + row.num_bytes > MAX_PAGE_BYTES):
                return page, True, num_bytes
            num_bytes += row.num_bytes
            with suppress(StorageCorrupt):
                page.append(read(row))
        return page, False, num_bytes

    def _find(self, connection: StoreConnection, key: Key, wanted: Filter) -> Iterator[StoredRow]:
        """A few rows at a time: a database may hand over all that a statement finds, and objects are large."""
        is_rising = wanted.order == "asc"
        conditions = ["kind=:kind", "owner=:owner", "parent=:parent", _IS_LIVE]
        conditions.append("seq > :place" if is_rising else "seq < :place")
        given: dict[str, object] = {**key._asdict(), "now": self._clock(), "place": 0 if is_rising else LAST_PLACE}
        if wanted.after is not None:
            given["place"] = self._place(connection, key._replace(id=wanted.after))
        if wanted.model is not None:
            given["model"] = wanted.model
            conditions.append("model=:model")
        for number, pair in enumerate((wanted.metadata or {}).items()):
            given |= {f"first{number}": "{" + _member(*pair), f"later{number}": "," + _member(*pair)}
            conditions.append(f"replace(replace(metadata, :first{number}, ''), :later{number}, '') <> metadata")
        statement = f"SELECT seq, {COLUMNS} FROM objects WHERE {' AND '.join(conditions)} ORDER BY seq {wanted.order}"
        num_rows = min(wanted.limit + 1, _BATCH_ROWS)
        while True:
            found = connection.execute(f"{statement} LIMIT {num_rows}", given).fetchall()
            yield from (StoredRow._make(row) for _, *row in found)
            if len(found) < num_rows:
                return
            given["place"] = found[-1][0]

    def _place(self, connection: StoreConnection, key: Key) -> int:
        found = connection.execute(f"SELECT seq FROM objects WHERE {_IS_KEY}", key._asdict()).fetchone()
        if found is None:
            raise not_found(key.id, param="after")
        return int(found[0])

    def has_expired(self, connection: StoreConnection) -> bool:
        found = connection.execute("SELECT 1 FROM objects WHERE expires_at <= ? LIMIT 1", (self._clock(),))
        return found.fetchone() is not None

    def purge(self, connection: StoreConnection) -> bool:
        """Remove a few of the rows whose time is over. True: there may be more."""
        found = connection.execute(
            "SELECT seq, kind, owner, id FROM objects WHERE expires_at <= ? ORDER BY expires_at LIMIT ?",
            (self._clock(), PURGED_ROWS),
        ).fetchall()
        num_left = PURGED_ROWS
        for seq, kind, owner, id_ in found:
            if kind == "conversation":
                children = f"SELECT seq FROM objects WHERE {_IS_CHILD} LIMIT :limit"
                given = {"owner": owner, "parent": id_, "limit": num_left}
                num_left -= connection.execute(f"DELETE FROM objects WHERE seq IN ({children})", given).rowcount
            if num_left <= 0:
                return True
            num_left -= let_go(connection, seq, num_left)
        return num_left <= 0


def _member(name: str, value: str) -> str:
    """A member of a JSON object as it was encoded. After a brace or a comma it stands nowhere else: within a string
    there is a backslash before every quote.
    """
    return encode_text({name: value})[1:-1]


_IS_KEY = "kind=:kind AND owner=:owner AND parent=:parent AND id=:id"
_IS_CHILD = "kind='item' AND owner=:owner AND parent=:parent"
_IS_LIVE = "body IS NOT NULL AND expires_at > :now"
_CHANGED = ("expires_at", "status", "run", "model", "metadata", "previous", "place", "turn", "body", "extra")
_SETS = ", ".join(f"{name} = excluded.{name}" for name in _CHANGED)
_WRITTEN = (*Key._fields, "created_at", *_CHANGED)
# What was deleted, and what others gave up, stays so.
_UPSERT = (
    f"INSERT INTO objects ({', '.join(_WRITTEN)}) VALUES ({', '.join(f':{name}' for name in _WRITTEN)}) "
    f"ON CONFLICT (kind, owner, parent, id) DO UPDATE SET {_SETS} "
    "WHERE objects.body IS NOT NULL AND objects.expires_at > :now AND objects.run <> :given_up"
)


def not_found(id_: str, *, param: str | None = None) -> NotFound:
    return NotFound(f"There is no stored object with the id {id_[:80]!r}.", param=param)


def too_large(max_bytes: int, *, param: str | None = None) -> TooLarge:
    return TooLarge(f"An object of more than {max_bytes // 1024} KiB cannot be stored; send store: false.", param=param)


def item_too_large(max_bytes: int, *, param: str | None = None) -> TooLarge:
    return TooLarge(f"An item of more than {max_bytes // 1024} KiB cannot be kept in a conversation.", param=param)
