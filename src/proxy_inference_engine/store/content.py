"""Objects as the bytes of a row: JSON, and what is said of bytes that are no JSON any more."""

import json
import logging
from typing import Any

from proxy_inference_engine.errors import StorageCorrupt

_logger = logging.getLogger(__name__)
# What is no list but reads as one is written as one.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=list).encode


def encode(value: object) -> bytes:
    return encode_text(value).encode("utf-8", "surrogatepass")


def encode_text(value: object) -> str:
    return _encode(value)


def decode_object(data: object, id_: str) -> dict[str, Any]:
    """What was encoded for the object `id_`. Raises StorageCorrupt: a disk may change what it was given."""
    value = _decode(data)
    if not isinstance(value, dict):
        raise corrupt(id_)
    return value


def decode_list(data: object, id_: str) -> list[Any]:
    value = _decode(data)
    if not isinstance(value, list):
        raise corrupt(id_)
    return value


def _decode(data: object) -> object:
    try:
        return json.loads(data) if isinstance(data, bytes) else None
    except (ValueError, RecursionError):
        return None


def corrupt(id_: str) -> StorageCorrupt:
    _logger.error("a stored object is damaged", extra={"fields": {"id": id_}})
    return StorageCorrupt(f"The stored object {id_[:80]!r} is damaged and cannot be read; it can be deleted.")
