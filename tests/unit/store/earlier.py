"""Files as earlier versions of the program made them, with what they wrote into them."""

import base64
import json
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

_FIRST = """
CREATE TABLE schema (version INTEGER NOT NULL);
CREATE TABLE objects (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, owner TEXT NOT NULL, parent TEXT NOT NULL,
    id TEXT NOT NULL, created_at INTEGER NOT NULL, expires_at REAL NOT NULL, status TEXT NOT NULL, run TEXT NOT NULL,
    model TEXT, metadata TEXT NOT NULL, extra BLOB, body BLOB, UNIQUE (kind, owner, parent, id)
);
CREATE INDEX objects_in_order ON objects (kind, owner, parent, seq);
CREATE INDEX objects_by_expiry ON objects (expires_at);
CREATE INDEX objects_unfinished ON objects (status) WHERE status IN ('queued', 'in_progress');
CREATE TABLE owners (owner TEXT PRIMARY KEY, num_rows INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER row_added AFTER INSERT ON objects BEGIN
    INSERT INTO owners VALUES (NEW.owner, 1) ON CONFLICT DO UPDATE SET num_rows = num_rows + 1;
END;
CREATE TRIGGER row_emptied AFTER UPDATE OF body ON objects WHEN OLD.body IS NOT NULL AND NEW.body IS NULL BEGIN
    UPDATE owners SET num_rows = num_rows - 1 WHERE owner = NEW.owner;
END;
CREATE TRIGGER row_removed AFTER DELETE ON objects WHEN OLD.body IS NOT NULL BEGIN
    UPDATE owners SET num_rows = num_rows - 1 WHERE owner = OLD.owner;
END;
INSERT INTO schema VALUES (1);
"""
_SECOND = """
CREATE TABLE schema (version INTEGER NOT NULL);
CREATE TABLE objects (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, owner TEXT NOT NULL, parent TEXT NOT NULL,
    id TEXT NOT NULL, created_at INTEGER NOT NULL, expires_at REAL NOT NULL, status TEXT NOT NULL, run TEXT NOT NULL,
    model TEXT, metadata TEXT NOT NULL, previous TEXT, place INTEGER, turn BLOB, extra BLOB, body BLOB,
    UNIQUE (kind, owner, parent, id)
);
CREATE INDEX objects_in_order ON objects (kind, owner, parent, seq);
CREATE INDEX objects_by_expiry ON objects (expires_at);
CREATE INDEX objects_unfinished ON objects (status) WHERE status IN ('queued', 'in_progress');
CREATE INDEX objects_following ON objects (owner, previous) WHERE previous IS NOT NULL AND place IS NULL;
CREATE TABLE owners (owner TEXT PRIMARY KEY, num_rows INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER row_added AFTER INSERT ON objects BEGIN
    INSERT INTO owners VALUES (NEW.owner, 1) ON CONFLICT DO UPDATE SET num_rows = num_rows + 1;
END;
CREATE TRIGGER row_emptied AFTER UPDATE OF body, turn ON objects
    WHEN coalesce(OLD.body, OLD.turn) IS NOT NULL AND coalesce(NEW.body, NEW.turn) IS NULL BEGIN
    UPDATE owners SET num_rows = num_rows - 1 WHERE owner = NEW.owner;
END;
CREATE TRIGGER row_removed AFTER DELETE ON objects WHEN coalesce(OLD.body, OLD.turn) IS NOT NULL BEGIN
    UPDATE owners SET num_rows = num_rows - 1 WHERE owner = OLD.owner;
END;
INSERT INTO schema VALUES (2);
"""
_USAGE = """
CREATE TABLE usage (
    key TEXT PRIMARY KEY, num_requests INTEGER NOT NULL, num_prompt_tokens INTEGER NOT NULL,
    num_cached_tokens INTEGER NOT NULL, num_tokens INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO usage VALUES ('anna', 1, 10, 5, 3);
"""
FRAMES = base64.b85encode(zlib.compress(json.dumps(["event: a\ndata: {}\n\n"]).encode())).decode()
_NO_FRAMES = base64.b85encode(zlib.compress(b"[]")).decode()
OUTPUT: list[dict[str, Any]] = [
    {"id": "call", "type": "function_call", "status": "incomplete"},
    {
        "id": "said",
        "type": "message",
        "status": "completed",
        "content": [{"text": "Hi", "logprobs": [{"token": "Hi"}]}],
    },
]
SAID = {**OUTPUT[1], "content": [{"text": "Hi", "logprobs": []}]}
ASKED: dict[str, Any] = {"id": "asked"}
EARLIER: dict[str, Any] = {"id": "earlier"}


def write(path: Path, version: str) -> None:
    """A response with what came before it, one that was cut off, a chat, a conversation with an item, what is deleted
    and what is damaged.
    """
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(_FIRST if version == "1" else _SECOND)
        if version == "2 with usage":
            connection.executescript(_USAGE)
        is_first = version == "1"
        _put(connection, "response", "a", {"id": "a", "output": OUTPUT, "metadata": {"k": "v"}}, *_beside(is_first))
        begun: dict[str, Any] = {"id": "b", "status": "queued", "output": [], "error": None}
        _put(connection, "response", "b", begun, *_beside(is_first, is_begun=True), status="queued", run="0" * 16)
        _put(connection, "chat.completion", "c", {"id": "c"}, {"messages": [1]})
        _put(connection, "conversation", "d", {"id": "d"}, {})
        _put(connection, "item", "e", {"id": "e"}, {}, parent="d")
        _put(connection, "response", "f", {"id": "f"}, {})
        connection.execute("UPDATE objects SET body = NULL, extra = NULL, status = 'deleted' WHERE id = 'f'")
        _put(connection, "response", "g", {"id": "g"}, {})
        connection.execute("UPDATE objects SET body = ? WHERE id = 'g'", (b"{",))


def _beside(is_first: bool, *, is_begun: bool = False) -> tuple[Any, ...]:
    """`extra` and, in the second version, the turn."""
    if is_first:
        return ({"earlier": [EARLIER], "input": [ASKED], "frames": _NO_FRAMES if is_begun else FRAMES},)
    extra = {"num_input": 1, "frames": None if is_begun else FRAMES, "num_earlier": 1}
    return extra, [EARLIER, ASKED, *([] if is_begun else [SAID])]


def _put(
    connection: sqlite3.Connection,
    kind: str,
    id_: str,
    body: Any,
    extra: Any,
    turn: Any = None,
    *,
    parent: str = "",
    status: str = "completed",
    run: str = "",
) -> None:
    values = {
        "kind": kind,
        "owner": "anna",
        "parent": parent,
        "id": id_,
        "created_at": 100,
        "expires_at": 1e18,
        "status": status,
        "run": run,
        "metadata": json.dumps(body.get("metadata", {}), separators=(",", ":")),
        "extra": json.dumps(extra).encode(),
        "body": json.dumps(body).encode(),
    }
    if turn is not None:
        values["turn"] = json.dumps(turn).encode()
    names = ", ".join(values)
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO objects ({names}) VALUES ({marks})", tuple(values.values()))
