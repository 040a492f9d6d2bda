"""The values the store takes and gives: wire objects with their owner. Knows no database."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Kind = Literal["response", "conversation", "chat.completion"]
Order = Literal["asc", "desc"]
Items = list[dict[str, Any]]

_DAY_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class Record:
    """One stored object. Nobody changes `body` or `extra` while it is being saved."""

    kind: Kind
    id: str
    owner: str  # the name of the key that made it; nobody else ever sees it
    created_at: int
    body: dict[str, Any]  # the object as it is returned
    extra: dict[str, Any]  # what belongs to it and is not in it: input, events, messages
    status: str = "completed"  # of a response: queued, in_progress, completed, failed, cancelled, incomplete


class Page(NamedTuple):
    records: list[Record]
    has_more: bool


class ItemPage(NamedTuple):
    items: Items
    has_more: bool


@dataclass(frozen=True, slots=True)
class StoreLimits:
    max_bytes: int = 2 * 1024 * 1024  # of one object or item, as JSON
    max_rows: int = 10_000  # objects and items of one owner together
    ttl_seconds: float = 30 * _DAY_SECONDS  # since an object was last written
    max_pages: int | None = None  # of the file; None: as many as the disk has
