"""The values the store takes and gives: wire objects with their owner. Knows no database."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from proxy_inference_engine.store.files import FileLimits

ObjectKind = Literal["response", "conversation", "chat.completion", "file", "batch"]
Order = Literal["asc", "desc"]
Items = list[dict[str, Any]]

NUM_EARLIER = "num_earlier"  # in `extra`: how many items of the turn are of what the response builds on
_DAY_SECONDS = 24 * 3600


class Link(NamedTuple):
    """What a response builds on: another response, or with a place, a conversation up to there."""

    id: str
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One stored object. Nobody changes what it holds while it is being saved."""

    kind: ObjectKind
    id: str
    owner: str  # the name of the key that made it; nobody else ever sees it
    created_at: int
    body: dict[str, Any]  # the object as it is returned
    extra: dict[str, Any]  # what belongs to it and is not in it: events, messages
    status: str = "completed"  # of a response: queued, in_progress, completed, failed, cancelled, incomplete
    turn: Items | None = None  # of a response: what it adds to the conversation, its input and what it said
    link: Link | None = None
    expires_at: float | None = None  # None: as long after it was written as anything else
    earlier: Sequence[dict[str, Any]] | None = None  # what the link leads to: stored too where that is gone by now


class Page(NamedTuple):
    records: list[Record]
    has_more: bool
    num_bytes: int = 0  # of all of them, about


class ItemPage(NamedTuple):
    items: Items
    has_more: bool
    num_bytes: int = 0


class Past(NamedTuple):
    """What a new response builds on, from the first item to the last."""

    items: Items
    link: Link
    status: str = "completed"  # of the response it follows


@dataclass(frozen=True, slots=True)
class StoreLimits:
    max_bytes: int = 2 * 1024 * 1024  # of one object or item, as JSON
    max_rows: int = 10_000  # objects and items of one owner together
    ttl_seconds: float = 30 * _DAY_SECONDS  # since an object was last written
    max_pages: int | None = None  # of the file; None: as many as the disk has
    files: FileLimits = field(default_factory=FileLimits)
    num_connections: int = 5  # to a database elsewhere: one writes, the others read
    run_seconds: float = 15.0  # a server that gives that database no sign of life for this long is dead
