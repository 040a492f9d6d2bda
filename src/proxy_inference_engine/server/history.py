"""What a Responses body builds on: a previous response, a conversation, items it refers to. And what is kept of it.

Reads and writes the store; what items mean to the model is not its business.
"""

import base64
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from proxy_inference_engine.errors import InvalidRequest, NotFound
from proxy_inference_engine.server.convert.responses_items import input_items, num_chars
from proxy_inference_engine.server.convert.responses_turns import stored_item
from proxy_inference_engine.server.off_loop import off_loop
from proxy_inference_engine.server.param import shorten
from proxy_inference_engine.server.schemas.items import AnyItem, MessageItem, ReferenceItem
from proxy_inference_engine.server.schemas.responses import Conversing
from proxy_inference_engine.store import Record, Store

_UNFINISHED = frozenset({"queued", "in_progress"})
_PAGE = 100
_STORED_CHARS = 1024  # a guess
_PLACED = re.compile(r"[a-z]+_([0-9a-f]{32})[0-9a-f]{4}", re.ASCII)

WireItem = dict[str, Any]


@dataclass(frozen=True, slots=True)
class History:
    """All that is said to the model, but for the instructions."""

    earlier: Sequence[WireItem]  # as stored
    own: Sequence[AnyItem]  # of this body, references resolved

    @property
    def items(self) -> list[AnyItem]:
        return [*map(stored_item, self.earlier), *self.own]

    @property
    def num_chars(self) -> int:
        """What is read from the store is proved again, which takes longer than its text does."""
        return len(self.earlier) * _STORED_CHARS + sum(map(num_chars, self.own))


async def gather(body: Conversing, store: Store, owner: str) -> History:
    """Raises NotFound for what is not there or belongs to somebody else."""
    if body.previous_response_id is not None and body.conversation is not None:
        raise InvalidRequest(
            "'previous_response_id' and 'conversation' exclude each other.", param="previous_response_id"
        )
    earlier: list[WireItem] = []
    if body.previous_response_id is not None:
        earlier = items_of(await _previous(store, owner, body.previous_response_id))
    elif body.conversation_id is not None:
        earlier = await _conversation(store, owner, body.conversation_id)
    own = [MessageItem(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    return History(earlier, await _resolved(own, earlier, store, owner))


def items_of(record: Record) -> list[WireItem]:
    """What a following response builds on."""
    return [*record.extra["earlier"], *record.extra["input"], *_lasting(record.body["output"])]


def _lasting(output: Iterable[WireItem]) -> list[WireItem]:
    """What later turns may build on: a call that was cut off was never made."""
    return [_bare(item) for item in output if item["status"] == "completed" or not item["type"].endswith("_call")]


def _bare(item: WireItem) -> WireItem:
    """Without the log-probabilities, which nobody reads again and every later response would carry along."""
    if item["type"] != "message":
        return item
    return {**item, "content": [{**part, "logprobs": []} for part in item["content"]]}


async def _previous(store: Store, owner: str, id_: str) -> Record:
    record = await store.load("response", owner, id_)
    param = "previous_response_id"
    if record is None:
        raise NotFound(
            f"There is no stored response {shorten(id_)!r}.", param=param, code="previous_response_not_found"
        )
    if record.status in _UNFINISHED:
        raise InvalidRequest(f"The response {shorten(id_)!r} is not complete yet.", param=param)
    return record


async def _conversation(store: Store, owner: str, id_: str) -> list[WireItem]:
    if await store.load("conversation", owner, id_) is None:
        raise NotFound(f"There is no conversation {shorten(id_)!r}.", param="conversation")
    items: list[WireItem] = []
    while True:
        after = items[-1]["id"] if items else None
        page = await store.list_items(owner, id_, after=after, limit=_PAGE)
        items += page.items
        if not page.has_more:
            return items


async def _resolved(own: Sequence[AnyItem], earlier: Sequence[WireItem], store: Store, owner: str) -> Sequence[AnyItem]:
    if not any(isinstance(item, ReferenceItem) for item in own):
        return own
    known = _by_id(earlier)
    loaded: set[str] = set()
    resolved: list[AnyItem] = []
    for index, item in enumerate(own):
        if not isinstance(item, ReferenceItem):
            resolved.append(item)
            continue
        home = _home(item.id)
        if item.id not in known and home is not None and home not in loaded:
            loaded.add(home)
            record = await store.load("response", owner, home)
            known |= {} if record is None else _by_id([*record.extra["input"], *record.body["output"]])
        if item.id not in known:
            raise NotFound(f"There is no stored item {shorten(item.id)!r}.", param=f"input[{index}].id")
        resolved.append(stored_item(known[item.id]))
    return resolved


def _by_id(items: Iterable[WireItem]) -> dict[str, WireItem]:
    return {item["id"]: item for item in items if "id" in item}


def _home(item_id: str) -> str | None:
    """The response that an item belongs to: its id says so."""
    match = _PLACED.fullmatch(item_id)
    return None if match is None else f"resp_{match.group(1)}"


@dataclass(frozen=True, slots=True)
class Keeper:
    """Stores one response under its owner: at its beginning where it runs in the background, and at its end."""

    store: Store
    owner: str
    history: History
    conversation: str | None
    is_stored: bool = True  # False: only the conversation remembers it

    async def begin(self, response: WireItem) -> None:
        await self.store.save(self._record(response, ()))

    async def end(self, response: WireItem, frames: Sequence[str]) -> None:
        # Packing a long stream takes a while.
        record = await off_loop(lambda: self._record(response, frames), sum(map(len, frames)))
        said = self._said(record)
        if not self.is_stored:
            await self.store.add_items(self.owner, self.conversation or "", said)
        else:
            await self.store.save(record, conversation=self.conversation if said else None, items=said)

    def _said(self, record: Record) -> list[WireItem]:
        """What the conversation gains; nothing where the answer failed."""
        if self.conversation is None or record.status not in ("completed", "incomplete"):
            return []
        known = {item["id"] for item in self.history.earlier}
        items = [*record.extra["input"], *_lasting(record.body["output"])]
        return [item for item in items if item["id"] not in known]

    def _record(self, response: WireItem, frames: Sequence[str]) -> Record:
        extra = {
            "earlier": list(self.history.earlier),
            "input": input_items(self.history.own, response["id"]),
            "frames": packed(frames),
        }
        id_, created_at, status = response["id"], response["created_at"], response["status"]
        return Record("response", id_, self.owner, created_at, response, extra, status)


def packed(frames: Sequence[str]) -> str:
    """A stream repeats itself in every frame: it takes a twentieth of its room."""
    return base64.b85encode(zlib.compress(json.dumps(list(frames)).encode())).decode()


def unpacked(frames: str) -> list[str]:
    loaded: list[str] = json.loads(zlib.decompress(base64.b85decode(frames)))
    return loaded
