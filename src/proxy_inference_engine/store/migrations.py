"""The tables, as the steps that made them, in both dialects. They run at every start, those that have not yet.

Each step is one transaction that also notes its number: of two servers that start at once one waits for the other, and
one that is killed in between leaves what the last whole step made. A step is never changed once it was released; what
is new is a new step at the end.
"""

import base64
import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from proxy_inference_engine.errors import StartupError, StorageCorrupt
from proxy_inference_engine.store.content import decode_object, encode
from proxy_inference_engine.store.database import StoreConnection

SQLITE = {
    "seq": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "bytes": "BLOB",
    "real": "REAL",
    "number": "INTEGER",
    "keyed": "WITHOUT ROWID",
}
POSTGRES = {
    "seq": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "bytes": "BYTEA",
    "real": "DOUBLE PRECISION",
    "number": "BIGINT",
    "keyed": "",
}


class Script(Protocol):
    """Runs statements inside the transaction of a step."""

    def __call__(self, connection: StoreConnection, script: str, /) -> object: ...


class Dialect(NamedTuple):
    """How a database is changed. `begin` waits until nobody else changes it."""

    types: dict[str, str]
    begin: Callable[[StoreConnection], object]
    run: Script


class Migration(NamedTuple):
    """`common` has the names of types in braces. `work` comes after them."""

    common: str = ""
    sqlite: str = ""
    postgres: str = ""
    work: Callable[[StoreConnection], None] | None = None


_FIRST = Migration(
    """
CREATE TABLE objects (
    seq {seq},
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    parent TEXT NOT NULL,
    id TEXT NOT NULL,
    created_at {number} NOT NULL,
    expires_at {real} NOT NULL,
    status TEXT NOT NULL,
    run TEXT NOT NULL,
    model TEXT,
    metadata TEXT NOT NULL,
    extra {bytes},
    body {bytes},
    UNIQUE (kind, owner, parent, id)
);
CREATE INDEX objects_in_order ON objects (kind, owner, parent, seq);
CREATE INDEX objects_by_expiry ON objects (expires_at);
CREATE INDEX objects_unfinished ON objects (status) WHERE status IN ('queued', 'in_progress');
CREATE TABLE owners (owner TEXT PRIMARY KEY, num_rows {number} NOT NULL) {keyed};
""",
    sqlite="""
CREATE TRIGGER row_added AFTER INSERT ON objects BEGIN
    INSERT INTO owners VALUES (NEW.owner, 1) ON CONFLICT DO UPDATE SET num_rows = num_rows + 1;
END;
CREATE TRIGGER row_emptied AFTER UPDATE OF body ON objects WHEN OLD.body IS NOT NULL AND NEW.body IS NULL BEGIN
    UPDATE owners SET num_rows = num_rows - 1 WHERE owner = NEW.owner;
END;
CREATE TRIGGER row_removed AFTER DELETE ON objects WHEN OLD.body IS NOT NULL BEGIN
    UPDATE owners SET num_rows = num_rows - 1 WHERE owner = OLD.owner;
END;
""",
)


def _move_turns(connection: StoreConnection) -> None:
    """What a response adds to its conversation stood in `extra`, with all that came before it."""
    found = connection.execute("SELECT seq FROM objects WHERE kind = 'response' AND body IS NOT NULL").fetchall()
    for (seq,) in found:
        id_, body, extra = connection.execute("SELECT id, body, extra FROM objects WHERE seq = ?", (seq,)).fetchone()
        try:
            response, beside = decode_object(body, id_), decode_object(extra, id_)
            turn = [*beside["earlier"], *beside["input"], *_lasting(response["output"])]
            frames = None if beside["frames"] == _NO_FRAMES else beside["frames"]
            kept = {"num_input": len(beside["input"]), "frames": frames, "num_earlier": len(beside["earlier"])}
        except (StorageCorrupt, LookupError, TypeError):
            continue  # damaged: whoever asks for it is told
        connection.execute("UPDATE objects SET turn = ?, extra = ? WHERE seq = ?", (encode(turn), encode(kept), seq))


_NO_FRAMES = base64.b85encode(zlib.compress(json.dumps([]).encode())).decode()


def _lasting(output: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    said = [item for item in output if item["status"] == "completed" or not item["type"].endswith("_call")]
    for item in said:
        for part in item["content"] if item["type"] == "message" else ():
            part["logprobs"] = []
    return said


# A row without a body was deleted. It remembers its place for pages that continue after it, and its turn for as long as
# another row has it as `previous`. The counts are kept by triggers, so that no way of adding or removing rows can
# forget them: a row counts while it holds anything.
_CHAINS = Migration(
    """
ALTER TABLE objects ADD COLUMN previous TEXT;
ALTER TABLE objects ADD COLUMN place {number};
ALTER TABLE objects ADD COLUMN turn {bytes};
CREATE INDEX objects_following ON objects (owner, previous) WHERE previous IS NOT NULL AND place IS NULL;
""",
    sqlite="""
DROP TRIGGER row_emptied;
DROP TRIGGER row_removed;
CREATE TRIGGER row_emptied AFTER UPDATE OF body, turn ON objects
    WHEN coalesce(OLD.body, OLD.turn) IS NOT NULL AND coalesce(NEW.body, NEW.turn) IS NULL BEGIN
    UPDATE owners SET num_rows = num_rows - 1 WHERE owner = NEW.owner;
END;
CREATE TRIGGER row_removed AFTER DELETE ON objects WHEN coalesce(OLD.body, OLD.turn) IS NOT NULL BEGIN
    UPDATE owners SET num_rows = num_rows - 1 WHERE owner = OLD.owner;
END;
""",
    postgres="""
CREATE FUNCTION count_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO owners VALUES (NEW.owner, 1) ON CONFLICT (owner) DO UPDATE SET num_rows = owners.num_rows + 1;
    RETURN NULL;
END $$;
CREATE FUNCTION uncount_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    UPDATE owners SET num_rows = num_rows - 1 WHERE owner = OLD.owner;
    RETURN NULL;
END $$;
CREATE TRIGGER row_added AFTER INSERT ON objects FOR EACH ROW EXECUTE FUNCTION count_row();
CREATE TRIGGER row_emptied AFTER UPDATE OF body, turn ON objects FOR EACH ROW
    WHEN (coalesce(OLD.body, OLD.turn) IS NOT NULL AND coalesce(NEW.body, NEW.turn) IS NULL)
    EXECUTE FUNCTION uncount_row();
CREATE TRIGGER row_removed AFTER DELETE ON objects FOR EACH ROW
    WHEN (coalesce(OLD.body, OLD.turn) IS NOT NULL) EXECUTE FUNCTION uncount_row();
""",
    work=_move_turns,
)

# Events of a response that is not finished, for those who follow it elsewhere. They go when all of them are stored with
# it, which is when `extra` is written, and with the row. A file may have had the table of usage before it had a number.
_MANY_SERVERS = Migration(
    """
ALTER TABLE objects ADD COLUMN is_cancelled {number} NOT NULL DEFAULT 0;
CREATE INDEX objects_of_run ON objects (run) WHERE status IN ('queued', 'in_progress');
CREATE TABLE said (place {number} NOT NULL, first {number} NOT NULL, frames {bytes}, PRIMARY KEY (place, first));
CREATE TABLE secrets (name TEXT PRIMARY KEY, value {bytes} NOT NULL);
CREATE TABLE IF NOT EXISTS usage (
    key TEXT PRIMARY KEY,
    num_requests {number} NOT NULL,
    num_prompt_tokens {number} NOT NULL,
    num_cached_tokens {number} NOT NULL,
    num_tokens {number} NOT NULL
) {keyed};
""",
    sqlite="""
CREATE TRIGGER row_ended AFTER UPDATE OF extra ON objects BEGIN DELETE FROM said WHERE place = NEW.seq; END;
CREATE TRIGGER row_gone AFTER DELETE ON objects BEGIN DELETE FROM said WHERE place = OLD.seq; END;
""",
    postgres="""
CREATE TABLE runs (id TEXT PRIMARY KEY, renewed_at DOUBLE PRECISION NOT NULL);
CREATE FUNCTION forget_said() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    DELETE FROM said WHERE place = OLD.seq;
    RETURN NULL;
END $$;
CREATE TRIGGER row_ended AFTER UPDATE OF extra ON objects FOR EACH ROW EXECUTE FUNCTION forget_said();
CREATE TRIGGER row_gone AFTER DELETE ON objects FOR EACH ROW EXECUTE FUNCTION forget_said();
""",
)

MIGRATIONS = (_FIRST, _CHAINS, _MANY_SERVERS)
VERSION = len(MIGRATIONS)


def migrate(connection: StoreConnection, dialect: Dialect) -> None:
    """Bring the tables to our version. Raises StartupError when they are of a later one."""
    while _step(connection, dialect):
        pass


def _step(connection: StoreConnection, dialect: Dialect) -> bool:
    """Whether there was one to take."""
    dialect.begin(connection)
    try:
        connection.execute("CREATE TABLE IF NOT EXISTS schema (version INTEGER NOT NULL)")
        found = connection.execute("SELECT version FROM schema").fetchone()
        (version,) = found or (0,)
        if version > VERSION:
            raise newer(version)
        if version == VERSION:
            return False
        _apply(connection, dialect, MIGRATIONS[version])
        note = "INSERT INTO schema VALUES (?)" if found is None else "UPDATE schema SET version = ?"
        connection.execute(note, (version + 1,))
        connection.execute("COMMIT")
        return True
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _apply(connection: StoreConnection, dialect: Dialect, migration: Migration) -> None:
    own = migration.sqlite if dialect.types is SQLITE else migration.postgres
    for script in (migration.common.format_map(dialect.types), own):
        if script:
            dialect.run(connection, script)
    if migration.work is not None:
        migration.work(connection)


def newer(version: int) -> StartupError:
    return StartupError(
        f"the stored objects are of version {version}, this program reads up to {VERSION}: use the program that wrote "
        "them, or set PIE_DATA_DIR or PIE_STORE_URL to another place"
    )
