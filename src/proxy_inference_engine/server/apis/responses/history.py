"""What a Responses body builds on: a previous response, a conversation, items it refers to. And what is kept of it.

A response is stored with its own turn and a link to what came before. What items mean is not this file's business.
"""

import base64
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from proxy_inference_engine.errors import ContextLengthExceeded, InvalidRequest, NotFound, StorageCorrupt, shorten
from proxy_inference_engine.served.model import Threads
from proxy_inference_engine.server.apis.responses.items import (
    AnyItem,
    MessageItem,
    ReferenceItem,
    input_items,
    least_bytes,
    num_chars,
)
from proxy_inference_engine.server.apis.responses.schema import Conversing
from proxy_inference_engine.server.apis.responses.turns import stored_item
from proxy_inference_engine.store import NUM_EARLIER, UNFINISHED, Link, Past, Record, Store, item_too_large, too_large

_STORED_CHARS = 1024  # a guess
_PLACED = re.compile(r"[a-z]+_([0-9a-f]{32})[0-9a-f]{4}", re.ASCII)

WireItem = dict[str, Any]


@dataclass(frozen=True, slots=True)
class History:
    """All that is said to the model, but for the instructions."""

    earlier: Sequence[WireItem]  # as stored
    own: Sequence[AnyItem]  # of this body, references resolved
    link: Link | None = None  # to where the earlier items are stored

    @property
    def items(self) -> list[AnyItem]:
        return [*map(stored_item, self.earlier), *self.own]

    @property
    def num_chars(self) -> int:
        """What is read from the store is checked again, which takes longer than its text does."""
        return len(self.earlier) * _STORED_CHARS + sum(map(num_chars, self.own))


Remembered = Mapping[str, Sequence[WireItem]]  # responses that nobody stored, by their ids
_NOTHING: Remembered = {}


async def gather(body: Conversing, store: Store, owner: str, remembered: Remembered = _NOTHING) -> History:
    """Raises NotFound for what is not there or belongs to somebody else."""
    if body.previous_response_id is not None and body.conversation is not None:
        raise InvalidRequest(
            "'previous_response_id' and 'conversation' exclude each other.", param="previous_response_id"
        )
    past = None
    known = remembered.get(body.previous_response_id or "")
    if known is None and body.previous_response_id is not None:
        past = await _previous(store, owner, body.previous_response_id)
    elif body.conversation_id is not None:
        past = await _conversation(store, owner, body.conversation_id)
    own = [MessageItem(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    earlier = (known or []) if past is None else past.items
    resolved = await _resolved(own, earlier, store, owner)
    return History(earlier, resolved, None if past is None else past.link)


def _lasting(output: Iterable[WireItem]) -> list[WireItem]:
    """What later turns may build on: a call that was cut off was never made."""
    return [_bare(item) for item in output if item["status"] == "completed" or not item["type"].endswith("_call")]


def _bare(item: WireItem) -> WireItem:
    """An item without its log-probabilities: nobody reads them again, and later responses would carry them along."""
    if item["type"] != "message":
        return item
    return {**item, "content": [{**part, "logprobs": []} for part in item["content"]]}


async def _previous(store: Store, owner: str, id_: str) -> Past:
    param = "previous_response_id"
    past = await _past(store, "response", owner, id_, param)
    if past is None:
        raise NotFound(
            f"There is no stored response {shorten(id_)!r}, or not all that it builds on.",
            param=param,
            code="previous_response_not_found",
        )
    if past.status in UNFINISHED:
        raise InvalidRequest(f"The response {shorten(id_)!r} is not complete yet.", param=param)
    return past


async def _conversation(store: Store, owner: str, id_: str) -> Past:
    past = await _past(store, "conversation", owner, id_, "conversation")
    if past is None:
        raise NotFound(f"There is no conversation {shorten(id_)!r}.", param="conversation")
    return past


async def _past(
    store: Store, kind: Literal["response", "conversation"], owner: str, id_: str, param: str
) -> Past | None:
    try:
        return await store.past(kind, owner, id_)
    except ContextLengthExceeded as error:
        error.param = param
        raise


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
            known |= {} if record is None else _by_id([*(record.turn or ()), *record.body["output"]])
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
class ResponseKeeper:
    """Stores one response under its owner: at its beginning where it runs in the background, and at its end."""

    store: Store
    owner: str
    history: History
    conversation: str | None
    threads: Threads
    is_stored: bool = True  # False: only the conversation remembers it

    def check(self) -> None:
        """Better now than after the answer. Raises TooLarge where what was asked is already more than can be kept."""
        most, sizes = self.store.max_bytes, list(map(least_bytes, self.history.own))
        if self.is_stored and sum(sizes) > most:
            raise too_large(most, param="input")
        for index, size in enumerate(sizes):
            if self.conversation is not None and size > most:
                raise item_too_large(most, param=f"input[{index}]")

    def check_said(self, num_chars: int) -> None:
        """Raises TooLarge where what was said so far is already more than can be kept."""
        if self.is_stored and num_chars > self.store.max_bytes:
            raise too_large(self.store.max_bytes)

    async def begin(self, response: WireItem) -> None:
        await self.store.save(self._record(response, ()))

    async def end(self, response: WireItem, frames: Sequence[str]) -> None:
        # Packing a long stream takes a while.
        size = sum(map(len, frames))
        record = await self.threads.run(lambda: self._record(response, frames), self.owner, size)
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
        return [item for item in record.turn or () if item["id"] not in known]

    def _record(self, response: WireItem, frames: Sequence[str]) -> Record:
        given = input_items(self.history.own, response["id"])
        # What a socket alone remembers is stored with what builds on it: there is nothing to link to.
        loose = self.history.earlier if self.history.link is None else ()
        return Record(
            "response",
            response["id"],
            self.owner,
            response["created_at"],
            response,
            {"num_input": len(given), "frames": packed(frames) if frames else None, NUM_EARLIER: len(loose)},
            response["status"],
            turn=[*loose, *given, *_lasting(response["output"])],
            link=self.history.link,
            earlier=self.history.earlier,
        )


def whole_turn(history: History, response: WireItem) -> list[WireItem]:
    """All that whoever goes on from a response builds on."""
    return [*history.earlier, *input_items(history.own, response["id"]), *_lasting(response["output"])]


def given_items(record: Record) -> list[WireItem]:
    """What a stored response was asked, without what it builds on."""
    start = record.extra.get(NUM_EARLIER, 0)
    return (record.turn or [])[start : start + record.extra["num_input"]]


def packed(frames: Sequence[str]) -> str:
    """A stream repeats itself in every frame: it takes a twentieth of its room."""
    return base64.b85encode(zlib.compress(json.dumps(list(frames)).encode())).decode()


def unpacked(frames: str) -> list[str]:
    """Raises StorageCorrupt."""
    try:
        loaded: list[str] = json.loads(zlib.decompress(base64.b85decode(frames)))
    except (ValueError, zlib.error):
        raise StorageCorrupt("The stored events of this response are damaged; the response is not.") from None
    return loaded
