"""Responses that build on one another, in SQL: the way back to the first, and what stays of those that are gone.

A response holds its own turn and a link to what came before it. One that is deleted, or whose time is over, is not
found any more, but its turn stays, and counts, for as long as a response that was built on it is there.
"""

from typing import NamedTuple

from proxy_inference_engine.errors import ContextLengthExceeded
from proxy_inference_engine.store.content import decode_list, decode_object
from proxy_inference_engine.store.database import StoreConnection
from proxy_inference_engine.store.record import Items, Link

MAX_BYTES = 32 * 1024 * 1024  # of one history: as much as the body of a request may have
MAX_RESPONSES = 10_000
FOREVER = 1e18
LAST_PLACE = 2**62
_KEPT = "kept"  # the status of a row that is only there for others

_WAY_BACK = """
WITH RECURSIVE way (number, num_bytes, previous, place, turn) AS (
    SELECT 1, length(turn), previous, place, turn FROM objects
    WHERE kind = 'response' AND owner = :owner AND parent = '' AND id = :id AND turn IS NOT NULL
    UNION ALL
    SELECT number + 1, num_bytes + length(objects.turn), objects.previous, objects.place, objects.turn
    FROM way CROSS JOIN objects
    WHERE kind = 'response' AND owner = :owner AND parent = '' AND id = way.previous AND objects.turn IS NOT NULL
    AND way.place IS NULL AND num_bytes <= :max_bytes AND number <= :max_responses
)
SELECT number, num_bytes, previous, place, turn FROM way
"""
_IS_FOLLOWED = (
    "EXISTS (SELECT 1 FROM objects AS next "
    "WHERE next.owner = objects.owner AND next.previous = objects.id AND next.place IS NULL)"
)


class _Step(NamedTuple):
    """One response on the way back."""

    number: int
    num_bytes: int  # of the turns up to here
    previous: str | None
    place: int | None
    turn: bytes


def history(connection: StoreConnection, owner: str, response_id: str, now: float) -> Items | None:
    """Every turn up to this response's. None: some of it is not there any more.

    Raises ContextLengthExceeded where it is more than can be read.
    """
    given = {"owner": owner, "id": response_id, "max_bytes": MAX_BYTES, "max_responses": MAX_RESPONSES}
    steps = sorted(_Step(*row) for row in connection.execute(_WAY_BACK, given))
    if not steps:
        return None
    first = steps[-1]
    if first.num_bytes > MAX_BYTES or first.number > MAX_RESPONSES:
        raise _too_long()
    items: Items = []
    if first.previous is not None:
        if first.place is None or not _has_conversation(connection, owner, first.previous, now):
            return None
        items, _ = thread(connection, owner, first.previous, first.place)
    for step in reversed(steps):
        items += decode_list(step.turn, response_id)
    return items


def has_turn(connection: StoreConnection, owner: str, response_id: str) -> bool:
    """Whether what was said in a response is there, be it only kept for others."""
    found = connection.execute(
        "SELECT 1 FROM objects WHERE kind = 'response' AND owner = ? AND parent = '' AND id = ? AND turn IS NOT NULL",
        (owner, response_id),
    )
    return found.fetchone() is not None


def thread(
    connection: StoreConnection, owner: str, conversation_id: str, place: int | None = None
) -> tuple[Items, Link]:
    """The items of a conversation, those after `place` left out, and the link to them.

    Raises ContextLengthExceeded where they are more than can be read, and StorageCorrupt.
    """
    among = "FROM objects WHERE kind = 'item' AND owner = ? AND parent = ? AND seq <= ? AND body IS NOT NULL"
    given = (owner, conversation_id, LAST_PLACE if place is None else place)
    (num_bytes,) = connection.execute(f"SELECT sum(length(body)) {among}", given).fetchone()
    if (num_bytes or 0) > MAX_BYTES:
        raise _too_long()
    rows = connection.execute(f"SELECT seq, id, body {among} ORDER BY seq", given).fetchall()
    items = [decode_object(body, id_) for _, id_, body in rows]
    return items, Link(conversation_id, rows[-1][0] if rows else 0)


def _has_conversation(connection: StoreConnection, owner: str, id_: str, now: float) -> bool:
    found = connection.execute(
        "SELECT 1 FROM objects WHERE kind = 'conversation' AND owner = ? AND parent = '' AND id = ? "
        "AND body IS NOT NULL AND expires_at > ?",
        (owner, id_, now),
    )
    return found.fetchone() is not None


def _too_long() -> ContextLengthExceeded:
    size = f"{MAX_BYTES // 1024**2} MiB or {MAX_RESPONSES} responses"
    return ContextLengthExceeded(f"What was said before is longer than {size}: compact it.")


def let_go(connection: StoreConnection, seq: int, limit: int, until: float | None = None) -> int:
    """Take a row away, and those that were only kept for it; a turn that others need stays.

    `until`: the rows are emptied and keep their places that long; None: they are removed. At most `limit` rows are
    changed, the purge takes the others. Returns how many were.
    """
    place: int | None = seq
    num_changed = 0
    while place is not None and num_changed < limit:
        found = connection.execute(
            f"SELECT owner, previous, {_IS_FOLLOWED} FROM objects WHERE seq = ?", (place,)
        ).fetchone()
        if found is None:
            return num_changed
        owner, previous, is_followed = found
        num_changed += 1
        if is_followed:
            _empty(connection, place, f"status = '{_KEPT}'", FOREVER)
            return num_changed
        if until is None:
            connection.execute("DELETE FROM objects WHERE seq = ?", (place,))
        else:
            _empty(connection, place, "status = 'deleted', turn = NULL, previous = NULL, place = NULL", until)
        place = _unneeded(connection, owner, previous)
    if place is not None:
        connection.execute("UPDATE objects SET expires_at = 0 WHERE seq = ?", (place,))
    return num_changed


def _empty(connection: StoreConnection, seq: int, changes: str, until: float) -> None:
    connection.execute(
        f"UPDATE objects SET body = NULL, extra = NULL, metadata = '{{}}', {changes}, expires_at = ? WHERE seq = ?",
        (until, seq),
    )


def _unneeded(connection: StoreConnection, owner: str, response_id: str | None) -> int | None:
    """The row of a response that was only kept for another, which is gone."""
    found = connection.execute(
        "SELECT seq FROM objects WHERE kind = 'response' AND owner = ? AND parent = '' AND id = ? AND status = ? "
        f"AND NOT {_IS_FOLLOWED}",
        (owner, response_id, _KEPT),
    ).fetchone()
    return None if found is None else int(found[0])
