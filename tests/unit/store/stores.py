"""Stores in files and records to put into them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from proxy_inference_engine.store import ObjectKind, Record, Store, StoreLimits
from tests.clock import Clock

Where = Path | str | None  # a file, a URL, or memory


@asynccontextmanager
async def opened(
    where: Where, limits: StoreLimits | None = None, clock: Callable[[], float] | None = None
) -> AsyncIterator[Store]:
    store = Store.open(where, limits=limits or StoreLimits(), clock=clock or Clock())
    try:
        yield store
    finally:
        store.close()


def record(
    id_: str, owner: str = "anna", *, kind: ObjectKind = "response", status: str = "completed", **body: Any
) -> Record:
    return Record(kind, id_, owner, 100, {"id": id_, **body}, {"input": [id_]}, status)


async def ids(store: Store, kind: ObjectKind = "response", owner: str = "anna", **query: Any) -> list[str]:
    return [found.id for found in (await store.list(kind, owner, **query)).records]
