"""What a process left behind that is gone. Nobody will finish its responses, so they have failed, in SQL and in a
response's own words; its batches go on in another process.

Whether a process lives is not known here.
"""

from collections.abc import Callable, Collection
from typing import Any, Final

from proxy_inference_engine.errors import StorageCorrupt
from proxy_inference_engine.store.content import decode_object, encode
from proxy_inference_engine.store.database import StoreConnection

UNFINISHED: Final = ("queued", "in_progress")
GIVEN_UP: Final = "given up"  # the run of a response that others have failed: should its own come back, it is too late
_IS_UNFINISHED = "kind = 'response' AND status IN ('queued', 'in_progress')"
# A response has a usage at its end. What one had that was cut off is not known.
_NO_USAGE: Final = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}


def unfinished_runs(connection: StoreConnection) -> set[str]:
    """The runs that responses wait for which are not finished."""
    return {run for (run,) in connection.execute(f"SELECT DISTINCT run FROM objects WHERE {_IS_UNFINISHED}")}


def fail_orphans(connection: StoreConnection, alive: Collection[str]) -> int:
    """Responses that no living run works on ended with the process that did. Returns how many."""
    found = connection.execute(f"SELECT seq, id, run, body FROM objects WHERE {_IS_UNFINISHED}").fetchall()
    left = [(GIVEN_UP, _failed(body, id_), seq) for seq, id_, run, body in found if run not in alive]
    if left:
        connection.executemany("UPDATE objects SET status = 'failed', run = ?, body = ? WHERE seq = ?", left)
    return len(left)


def adopt_batches(
    connection: StoreConnection, run: str, alive: Collection[str], is_here: Callable[[str, str], bool]
) -> list[tuple[str, str]]:
    """Batches that no living run works on are this one's from now on. Owner and id of each, the oldest first.

    `is_here`: whether an owner's file can be read from here.
    """
    found = connection.execute(
        "SELECT seq, owner, id, run, body FROM objects WHERE kind = 'batch' AND status = 'in_progress' ORDER BY seq"
    ).fetchall()
    adopted = []
    for seq, owner, id_, its_run, body in found:
        if its_run not in alive and is_here(owner, _input_of(body, id_)):
            connection.execute("UPDATE objects SET run = ? WHERE seq = ?", (run, seq))
            adopted.append((owner, id_))
    return adopted


def _input_of(body: bytes, id_: str) -> str:
    try:
        return str(decode_object(body, id_).get("input_file_id"))
    except StorageCorrupt:
        return "damaged"


def give_up(connection: StoreConnection, owner: str, id_: str) -> None:
    """A response whose own server cannot store its end."""
    found = connection.execute(
        f"SELECT seq, body FROM objects WHERE {_IS_UNFINISHED} AND owner = ? AND parent = '' AND id = ?", (owner, id_)
    ).fetchone()
    if found is not None:
        seq, body = found
        values = (GIVEN_UP, _failed(body, id_, "The end of the response could not be stored."), seq)
        connection.execute("UPDATE objects SET status = 'failed', run = ?, body = ? WHERE seq = ?", values)


def _failed(body: bytes, id_: str, message: str = "The server stopped before the response was finished.") -> bytes:
    try:
        response: dict[str, Any] = decode_object(body, id_)
    except StorageCorrupt:
        return body  # whoever asks for it is told
    response["status"] = "failed"
    response["error"] = {"code": "server_error", "message": message}
    for item in response.get("output") or []:
        if isinstance(item, dict) and item.get("status") == "in_progress":
            item["status"] = "incomplete"
    response["usage"] = response.get("usage") or _NO_USAGE
    return encode(response)
