"""What a response in the background has said so far, in SQL: its events in pieces, until all are stored with it.

Another server shows them to those who follow it there, and cancels it; they outlive a crash. Each function runs inside
a transaction of its caller.
"""

import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from proxy_inference_engine.errors import StorageCorrupt
from proxy_inference_engine.store.database import StoreConnection
from proxy_inference_engine.store.orphans import UNFINISHED

_IS_RESPONSE = "kind = 'response' AND owner = :owner AND parent = '' AND id = :id"
_OF_RUN = "run = ? AND kind = 'response' AND status IN ('queued', 'in_progress')"


class ResponseId(NamedTuple):
    owner: str
    id: str


class NewFrames(NamedTuple):
    """Frames of a response from a number on."""

    first: int
    frames: Sequence[str]


class SaidSoFar(NamedTuple):
    """What is known of a response here; `frames` from the number that was asked for."""

    status: str
    frames: list[str]

    @property
    def is_over(self) -> bool:
        return self.status not in UNFINISHED


class RunNews(NamedTuple):
    """Which responses of a run are still there, and which of them somebody has cancelled."""

    unfinished: Collection[ResponseId]
    cancelled: Collection[ResponseId]


def add_said(connection: StoreConnection, run: str, news: Mapping[ResponseId, NewFrames]) -> RunNews:
    """Add what responses said that are not finished; for the others it comes too late."""
    found = connection.execute(f"SELECT owner, id, seq, is_cancelled FROM objects WHERE {_OF_RUN}", (run,)).fetchall()
    places = {ResponseId(owner, id_): seq for owner, id_, seq, _ in found}
    rows = [(places[each], new.first, _packed(new.frames)) for each, new in news.items() if each in places]
    if rows:
        # What is told a second time, because nobody knows whether it was stored, has more than the first.
        again = "ON CONFLICT (place, first) DO UPDATE SET frames = excluded.frames"
        connection.executemany(f"INSERT INTO said VALUES (?, ?, ?) {again}", rows)
    return RunNews(places.keys(), {ResponseId(owner, id_) for owner, id_, _, is_cancelled in found if is_cancelled})


def read_said(connection: StoreConnection, which: ResponseId, first: int) -> tuple[SaidSoFar, str] | None:
    """What a response has said so far, and the run that makes it. None: there is no such response."""
    found = connection.execute(
        f"SELECT seq, status, run FROM objects WHERE {_IS_RESPONSE} AND body IS NOT NULL", which._asdict()
    ).fetchone()
    if found is None:
        return None
    place, status, run = found
    # From the piece on in which the first is: it begins at or before it.
    begin = "SELECT coalesce(max(first), 0) FROM said WHERE place = :place AND first <= :first"
    pieces = connection.execute(
        f"SELECT first, frames FROM said WHERE place = :place AND first >= ({begin}) ORDER BY first",
        {"place": place, "first": first},
    )
    frames = [frame for start, data in pieces for frame in _unpacked(data)[max(0, first - start) :]]
    return SaidSoFar(status, frames), run


def ask_to_cancel(connection: StoreConnection, which: ResponseId) -> None:
    connection.execute(f"UPDATE objects SET is_cancelled = 1 WHERE {_IS_RESPONSE}", which._asdict())


def _packed(frames: Sequence[str]) -> bytes:
    return zlib.compress(json.dumps(list(frames)).encode(), 1)


def _unpacked(data: object) -> list[str]:
    try:
        loaded: list[str] = json.loads(zlib.decompress(data)) if isinstance(data, bytes) else []
    except (ValueError, zlib.error):
        raise StorageCorrupt("The stored events of this response are damaged; the response is not.") from None
    return loaded
