"""Conversations on the wire, and the items clients add to them as they are kept."""

from collections.abc import Mapping, Sequence
from time import time
from typing import Any, Literal

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.server.convert.responses_items import input_items
from proxy_inference_engine.server.ids import new_id
from proxy_inference_engine.server.schemas.items import (
    AnyItem,
    CompactionItem,
    HostedItem,
    ReasoningItem,
    ReferenceItem,
)
from proxy_inference_engine.server.sealing import Sealer, Unopenable
from proxy_inference_engine.store import Record


def new_conversation(owner: str, metadata: Mapping[str, str]) -> Record:
    id_, created_at = new_id("conv_"), int(time())
    body = {"id": id_, "object": "conversation", "created_at": created_at, "metadata": dict(metadata)}
    return Record("conversation", id_, owner, created_at, body, {})


def deleted_conversation(id_: str) -> dict[str, Any]:
    return {"id": id_, "object": "conversation.deleted", "deleted": True}


def kept_items(items: Sequence[AnyItem], sealer: Sealer) -> list[dict[str, Any]]:
    """Items as they are stored, each with an id of ours: a client's own could stand for another item.

    What hosted tools left behind is not kept; a conversation could not be continued with what is refused here.
    """
    for index, item in enumerate(items):
        if isinstance(item, ReferenceItem):
            raise _invalid(index, "a conversation keeps items themselves: send what the reference stands for")
        _check_seal(index, item, sealer)
    without_ids = [item.model_copy(update={"id": None}) for item in items if not isinstance(item, HostedItem)]
    return input_items(without_ids, new_id(""))


def skipped_items(items: Sequence[AnyItem]) -> list[str]:
    return [f"items[{index}]:{item.type}" for index, item in enumerate(items) if isinstance(item, HostedItem)]


def _check_seal(index: int, item: AnyItem, sealer: Sealer) -> None:
    if not isinstance(item, ReasoningItem | CompactionItem) or item.encrypted_content is None:
        return
    kind: Literal["reasoning", "compaction"] = "reasoning" if isinstance(item, ReasoningItem) else "compaction"
    try:
        sealer.open(kind, item.encrypted_content)
    except Unopenable:
        raise _invalid(index, "it was not made by this server, or was changed", ".encrypted_content") from None


def _invalid(index: int, reason: str, field: str = "") -> InvalidRequest:
    param = f"items[{index}]{field}"
    return InvalidRequest(f"Invalid value for {param!r}: {reason}.", param=param)
