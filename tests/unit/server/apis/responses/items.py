"""Items of the Responses API, as short as tests want to write them."""

from typing import Any

from pydantic import TypeAdapter

from proxy_inference_engine.interaction import Interaction
from proxy_inference_engine.server.apis.responses.items import AnyItem, ItemList
from proxy_inference_engine.server.apis.responses.turns import ItemTurns
from proxy_inference_engine.server.apis.shared.sealer import Sealer

SEALER = Sealer()
_items: TypeAdapter[list[AnyItem]] = TypeAdapter(ItemList)


def proved(items: list[dict[str, Any]]) -> list[AnyItem]:
    return _items.validate_python(items)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]}


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def call(id_: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id_, "name": "f", "arguments": "{}"}


def result(id_: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id_, "output": f"of {id_}"}


def turns_of(items: list[dict[str, Any]], num_earlier: int = 0, sealer: Sealer = SEALER) -> list[Interaction]:
    turns = ItemTurns(sealer, num_earlier)
    for item in proved(items):
        turns.add(item)
    return turns.finish()
