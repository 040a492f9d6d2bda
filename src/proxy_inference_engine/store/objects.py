"""The table of objects, in SQL: written, read, listed in pages, deleted, expired.

Items of a conversation are rows with a parent. Each method runs inside a transaction of its caller.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

from proxy_inference_engine.errors import NotFound, QuotaExceeded, TooLarge
from proxy_inference_engine.store.chains import FOREVER, has_turn, history, let_go, thread
from proxy_inference_engine.store.record import NUM_EARLIER, Kind, Link, Order, Past, Record, StoreLimits

ITEM: Final = "item"
CURSOR_SECONDS = 3600.0  # a page may continue after an object for this long after it was deleted
# A response has a usage at its end. What one had that was cut off is not known.
_NO_USAGE: Final = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}
PURGED_ROWS = 25  # at a time, so that writes never wait long
_COLUMNS = "kind, owner, id, created_at, status, body, extra, turn, previous, place"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Key(NamedTuple):
    """What one object is found by. An owner is part of it: there is no way to reach another's."""

    kind: Kind | Literal["item"]
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


class Row(NamedTuple):
    kind: str
    owner: str
    id: str
    created_at: int
    status: str
    body: bytes
    extra: bytes
    turn: bytes | None
    previous: str | None
    place: int | None

    def record(self, kind: Kind) -> Record:
        return Record(
            kind,
            self.id,
            self.owner,
            self.created_at,
            json.loads(self.body),
            json.loads(self.extra),
            self.status,
            None if self.turn is None else json.loads(self.turn),
            None if self.previous is None else Link(self.previous, self.place),
        )

    def item(self) -> dict[str, Any]:
        item = json.loads(self.body)
        assert isinstance(item, dict)
        return item


class Objects:
    def __init__(self, limits: StoreLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock

    @property
    def max_bytes(self) -> int:
        return self._limits.max_bytes

    def put(self, connection: sqlite3.Connection, record: Record, run: str) -> None:
        """Insert or replace. What was deleted stays deleted: a late write does not bring it back."""
        record = self._whole(connection, record)
        key = Key(record.kind, record.owner, record.id)
        model, metadata = record.body.get("model"), record.body.get("metadata")
        turn = None if record.turn is None else _data(record.turn)
        body, extra = _data(record.body), _data(record.extra)
        self._check_size(len(body) + len(extra) + len(turn or b""))
        previous, place = record.link or (None, None)
        self._write(
            connection,
            key,
            created_at=record.created_at,
            expires_at=self._clock() + self._limits.ttl_seconds,
            status=record.status,
            run=run,
            model=model if isinstance(model, str) else None,
            metadata=_encode(metadata if isinstance(metadata, dict) else {}),
            previous=previous,
            place=place,
            turn=turn,
            body=body,
            extra=extra,
        )

    def _whole(self, connection: sqlite3.Connection, record: Record) -> Record:
        """What it builds on may have been deleted while it was being made; then it holds that itself."""
        link, earlier = record.link, record.earlier
        if link is None or link.place is not None or earlier is None or has_turn(connection, record.owner, link.id):
            return record
        turn = [*earlier, *(record.turn or ())]
        extra = {**record.extra, NUM_EARLIER: len(earlier)}
        return replace(record, turn=turn, link=None, extra=extra)

    def put_item(self, connection: sqlite3.Connection, owner: str, parent: str, item: Mapping[str, Any]) -> None:
        """Insert at the end, or replace in its place."""
        key = Key(ITEM, owner, item["id"], parent)
        body = _data(item)
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

    def _write(self, connection: sqlite3.Connection, key: Key, **values: object) -> None:
        given = {**key._asdict(), **values, "now": self._clock()}
        changed = connection.execute(
            "UPDATE objects SET expires_at=:expires_at, status=:status, run=:run, model=:model, metadata=:metadata, "
            f"previous=:previous, place=:place, turn=:turn, body=:body, extra=:extra WHERE {_IS_KEY} AND {_IS_LIVE}",
            given,
        )
        if changed.rowcount:
            return
        self._check_quota(connection, key.owner)
        connection.execute(
            "INSERT INTO objects (kind, owner, parent, id, created_at, expires_at, status, run, model, metadata, "
            "previous, place, turn, body, extra) VALUES (:kind, :owner, :parent, :id, :created_at, :expires_at, "
            ":status, :run, :model, :metadata, :previous, :place, :turn, :body, :extra) ON CONFLICT DO NOTHING",
            given,
        )

    def _check_quota(self, connection: sqlite3.Connection, owner: str) -> None:
        found = connection.execute("SELECT num_rows FROM owners WHERE owner = ?", (owner,)).fetchone()
        if found and found[0] >= self._limits.max_rows:
            raise QuotaExceeded(
                f"This key keeps {self._limits.max_rows} stored objects and items, as many as it may: "
                "delete some, or send store: false."
            )

    def _check_size(self, num_bytes: int) -> None:
        if num_bytes > self.max_bytes:
            raise too_large(self.max_bytes)

    def change_metadata(
        self, connection: sqlite3.Connection, key: Key, metadata: Mapping[str, str]
    ) -> dict[str, Any] | None:
        """The object with other metadata, which is a new beginning of its time; None: there is none."""
        row = self.get(connection, key)
        if row is None:
            return None
        body = {**json.loads(row.body), "metadata": dict(metadata)}
        data = _data(body)
        self._check_size(len(data) + len(row.extra) + len(row.turn or b""))
        connection.execute(
            f"UPDATE objects SET body=:body, metadata=:metadata, expires_at=:expires_at WHERE {_IS_KEY}",
            {
                **key._asdict(),
                "body": data,
                "metadata": _encode(metadata),
                "expires_at": self._clock() + self._limits.ttl_seconds,
            },
        )
        return body

    def past(self, connection: sqlite3.Connection, key: Key) -> Past | None:
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

    def touch(self, connection: sqlite3.Connection, key: Key) -> None:
        """The object lives its whole time again. Raises NotFound."""
        expires_at = self._clock() + self._limits.ttl_seconds
        changed = connection.execute(
            f"UPDATE objects SET expires_at=:expires_at WHERE {_IS_KEY} AND {_IS_LIVE}",
            {**key._asdict(), "expires_at": expires_at, "now": self._clock()},
        )
        if not changed.rowcount:
            raise not_found(key.id)

    def get(self, connection: sqlite3.Connection, key: Key) -> Row | None:
        given = {**key._asdict(), "now": self._clock()}
        found = connection.execute(f"SELECT {_COLUMNS} FROM objects WHERE {_IS_KEY} AND {_IS_LIVE}", given).fetchone()
        return None if found is None else Row(*found)

    def remove(self, connection: sqlite3.Connection, key: Key) -> bool:
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

    def page(self, connection: sqlite3.Connection, key: Key, wanted: Filter) -> tuple[list[Row], bool]:
        """The rows of a list in the order they were first written, and whether there are more.

        `key.id` does not matter. Raises NotFound when there is nothing that `after` could mean.
        """
        conditions = ["kind=:kind", "owner=:owner", "parent=:parent", _IS_LIVE]
        given: dict[str, object] = {**key._asdict(), "now": self._clock(), "limit": wanted.limit + 1}
        if wanted.after is not None:
            given["place"] = self._place(connection, key._replace(id=wanted.after))
            conditions.append("seq > :place" if wanted.order == "asc" else "seq < :place")
        if wanted.model is not None:
            given["model"] = wanted.model
            conditions.append("model=:model")
        for number, (name, value) in enumerate((wanted.metadata or {}).items()):
            given |= {f"name{number}": name, f"value{number}": value}
            each = f"SELECT 1 FROM json_each(metadata) WHERE key=:name{number} AND value=:value{number}"
            conditions.append(f"EXISTS ({each})")
        found = connection.execute(
            f"SELECT {_COLUMNS} FROM objects WHERE {' AND '.join(conditions)} ORDER BY seq {wanted.order} LIMIT :limit",
            given,
        ).fetchall()
        return [Row(*row) for row in found[: wanted.limit]], len(found) > wanted.limit

    def _place(self, connection: sqlite3.Connection, key: Key) -> int:
        found = connection.execute(f"SELECT seq FROM objects WHERE {_IS_KEY}", key._asdict()).fetchone()
        if found is None:
            raise not_found(key.id, param="after")
        return int(found[0])

    def purge(self, connection: sqlite3.Connection) -> bool:
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

    def fail_unfinished(self, connection: sqlite3.Connection, alive: set[str]) -> int:
        """Responses that no living run works on ended with the process that did. Returns how many."""
        found = connection.execute(
            "SELECT seq, run, body FROM objects WHERE kind = 'response' AND status IN ('queued', 'in_progress')"
        ).fetchall()
        left = [(_encode_failed(body), seq) for seq, run, body in found if run not in alive]
        connection.executemany("UPDATE objects SET status = 'failed', body = ? WHERE seq = ?", left)
        return len(left)


_IS_KEY = "kind=:kind AND owner=:owner AND parent=:parent AND id=:id"
_IS_CHILD = "kind='item' AND owner=:owner AND parent=:parent"
_IS_LIVE = "body IS NOT NULL AND expires_at > :now"


def not_found(id_: str, *, param: str | None = None) -> NotFound:
    return NotFound(f"There is no stored object with the id {id_[:80]!r}.", param=param)


def too_large(max_bytes: int, *, param: str | None = None) -> TooLarge:
    return TooLarge(f"An object of more than {max_bytes // 1024} KiB cannot be stored; send store: false.", param=param)


def item_too_large(max_bytes: int, *, param: str | None = None) -> TooLarge:
    return TooLarge(f"An item of more than {max_bytes // 1024} KiB cannot be kept in a conversation.", param=param)


def _encode_failed(body: bytes) -> bytes:
    response = json.loads(body)
    response["status"] = "failed"
    response["error"] = {"code": "server_error", "message": "The server stopped before the response was finished."}
    for item in response.get("output") or []:
        if isinstance(item, dict) and item.get("status") == "in_progress":
            item["status"] = "incomplete"
    response["usage"] = response.get("usage") or _NO_USAGE
    return _data(response)


def _data(value: object) -> bytes:
    return _encode(value).encode("utf-8", "surrogatepass")
