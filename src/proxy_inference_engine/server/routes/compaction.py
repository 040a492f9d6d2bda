"""POST /v1/responses/compact: the older turns of a conversation become one sealed item with the model's own summary."""

from collections.abc import Sequence
from functools import partial
from time import time
from typing import Any, NamedTuple

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction import Interaction, Role
from proxy_inference_engine.output.answer import Answer
from proxy_inference_engine.server.body import body_size, read_json
from proxy_inference_engine.server.convert.responses_items import input_items, least_bytes, num_chars
from proxy_inference_engine.server.convert.responses_object import usage_of
from proxy_inference_engine.server.convert.usage import Tally
from proxy_inference_engine.server.generation import Generation, Step
from proxy_inference_engine.server.history import History, gather
from proxy_inference_engine.server.ids import new_id
from proxy_inference_engine.server.off_loop import off_loop
from proxy_inference_engine.server.record import record_of
from proxy_inference_engine.server.responding import Asker, make_turns, skipped_headers
from proxy_inference_engine.server.routes.answering import fold, json_response
from proxy_inference_engine.server.schemas.base import validate
from proxy_inference_engine.server.schemas.items import (
    AnyItem,
    CustomCallItem,
    FunctionCallItem,
    MessageItem,
    OutputItem,
)
from proxy_inference_engine.server.schemas.responses import CompactRequest, Reasoning, Text
from proxy_inference_engine.server.seeing import see
from proxy_inference_engine.server.services import services_of

_PROMPT = (
    "Summarise this conversation for somebody who has to go on with it and cannot read it. Keep the user's wishes, "
    "what was decided and done, names, numbers, and what is still open. Write the summary only."
)
_SHARE_SUMMARY = 4  # of the context, at most
_SHARE_KEPT = 4  # of the text: a last turn that is longer is summarised too
_MAX_KEPT_BYTES = 1 << 20  # a sealed item is larger than what is in it, and has to be stored as a whole
_MAX_SUMMARY_TOKENS = 2048


async def compact(http: HttpRequest) -> Response:
    services, record = services_of(http), record_of(http.scope)
    body = await read_json(http.scope, http.receive, partial(validate, CompactRequest))
    services.check_model(body.model)
    services.drain.check()
    if body.stream:
        raise InvalidRequest("A compaction is not streamed.", param="stream")
    history = await gather(body, services.store, record.tenant)
    size = history.num_chars + body_size(http.scope)
    items = await off_loop(lambda: history.items, size)
    if not items:
        raise InvalidRequest("There is nothing to compact.", param="input")
    parts = divided(items)
    context = services.engine.context_tokens
    most = min(context // _SHARE_SUMMARY, _MAX_SUMMARY_TOKENS)
    asked = _summarising(body, min(body.max_output_tokens or most, most))
    asker = Asker(asked, services, new_id("resp_"), record.tenant)
    older = History((), parts.older)
    seen = await see(http, await off_loop(lambda: _turns(asker, older), size))
    prepared = await off_loop(lambda: asker.prepare(seen.chats[0]), size)

    folded = _Summary(Tally([len(prepared.request.prompt_ids)], 1, record))
    stops = services.format.stop_strings
    generation = Generation(services.engine, [prepared.request], stops, services.metrics, prepared.machine.labels)
    made = await fold(http, services, generation, folded)
    kept = input_items(parts.kept, asker.id)
    sealed = services.sealer.of(record.tenant).seal("compaction", {"summary": made["summary"], "items": kept})
    item = {"id": new_id("cmp_"), "type": "compaction", "encrypted_content": sealed}
    answer = {"id": asker.id, "object": "response.compaction", "created_at": int(time()), "output": [item]}
    return json_response({**answer, "usage": made["usage"]}, skipped_headers(body, history, services, seen.ignored))


class _Parts(NamedTuple):
    older: Sequence[AnyItem]
    kept: Sequence[AnyItem]


def divided(items: Sequence[AnyItem]) -> _Parts:
    """The last turn is kept as it is, unless it is most of the text, too large to be sealed, or the only one."""
    start = len(items)
    waiting: set[str] = set()  # results whose call comes earlier
    for index in range(len(items) - 1, 0, -1):
        match items[index]:
            case OutputItem(call_id=call_id):
                waiting.add(call_id)
            case FunctionCallItem(call_id=call_id) | CustomCallItem(call_id=call_id):
                waiting.discard(call_id)
            case MessageItem(role="user") if not waiting:
                start = index
                break
    is_most = sum(map(num_chars, items[start:])) * _SHARE_KEPT > sum(map(num_chars, items))
    if is_most or sum(map(least_bytes, items[start:])) > _MAX_KEPT_BYTES:
        start = len(items)
    return _Parts(items[:start], items[start:])


def _summarising(body: CompactRequest, max_tokens: int) -> CompactRequest:
    plain: dict[str, Any] = {
        "tools": [],
        "tool_choice": None,
        "text": Text(),
        "reasoning": Reasoning(),
        "enable_thinking": False,
    }
    return body.model_copy(update={**plain, "truncation": "auto", "max_output_tokens": max_tokens})


def _turns(asker: Asker, older: History) -> list[Interaction]:
    return [*make_turns(asker, older), Interaction.of(Role.USER, _PROMPT)]


class _Summary:
    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._answer = Answer()

    def feed(self, step: Step) -> None:
        self._tally.feed(step)
        for _, event in step:
            self._answer.add(event)

    def finish(self) -> dict[str, Any]:
        return {"summary": self._answer.text.strip(), "usage": usage_of(self._tally.usage())}
