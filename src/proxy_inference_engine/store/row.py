"""One row of the table of objects, as it is read."""

from typing import Any, NamedTuple

from proxy_inference_engine.store.content import decode_list, decode_object
from proxy_inference_engine.store.record import Link, ObjectKind, Record


class StoredRow(NamedTuple):
    """What is in it is JSON, and may be damaged: `record` and `item` raise StorageCorrupt."""

    kind: str
    owner: str
    id: str
    created_at: int
    status: str
    run: str
    body: bytes
    extra: bytes
    turn: bytes | None
    previous: str | None
    place: int | None

    @property
    def num_bytes(self) -> int:
        return sum(len(part) for part in (self.body, self.extra, self.turn) if isinstance(part, bytes))

    def record(self, kind: ObjectKind) -> Record:
        return Record(
            kind,
            self.id,
            self.owner,
            self.created_at,
            decode_object(self.body, self.id),
            decode_object(self.extra, self.id),
            self.status,
            None if self.turn is None else decode_list(self.turn, self.id),
            None if self.previous is None else Link(self.previous, self.place),
        )

    def item(self) -> dict[str, Any]:
        return decode_object(self.body, self.id)


COLUMNS = ", ".join(StoredRow._fields)
