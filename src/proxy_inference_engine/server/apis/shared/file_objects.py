"""Files as clients see them: the object, its record, and who may read it."""

from time import time
from typing import Any

from starlette.requests import Request as HttpRequest

from proxy_inference_engine.errors import NotFound
from proxy_inference_engine.server.apis.shared.route import state_of
from proxy_inference_engine.server.http.access import visit_of
from proxy_inference_engine.store import ObjectKind, Record, Store

FILE: ObjectKind = "file"
IN_THREAD = 1 << 20  # characters: work that waits for the disk is not done in the event loop


def file_record(
    owner: str, id_: str, name: str, purpose: str, num_bytes: int, expires_after_s: int | None = None
) -> Record:
    created_at = int(time())
    expires_at = None if expires_after_s is None else created_at + expires_after_s
    body: dict[str, Any] = {
        "id": id_,
        "object": "file",
        "bytes": num_bytes,
        "created_at": created_at,
        "expires_at": expires_at,
        "filename": name,
        "purpose": purpose,
        "status": "processed",
        "status_details": None,
    }
    return Record(FILE, id_, owner, created_at, body, {}, expires_at=expires_at)


async def load_file(store: Store, owner: str, id_: str, *, param: str = "file_id") -> Record:
    """Raises NotFound, also for another key's."""
    record = await store.load(FILE, owner, id_)
    if record is None:
        raise NotFound("There is no file with this id.", param=param)
    return record


async def file_of(http: HttpRequest) -> Record:
    """The file that the path names."""
    return await load_file(state_of(http).store, visit_of(http.scope).tenant, http.path_params["file_id"])
