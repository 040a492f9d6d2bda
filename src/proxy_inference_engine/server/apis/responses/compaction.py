"""POST /v1/responses/compact: the older turns of a conversation become one sealed item with the model's own summary."""

from collections.abc import Sequence
from time import time
from typing import Any, NamedTuple

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction import Interaction, Role
from proxy_inference_engine.output.answer import Answer
from proxy_inference_engine.served.ask import Ask
from proxy_inference_engine.served.stream import Step
from proxy_inference_engine.server.apis.responses.ask import make_ask, make_turns, not_honoured
from proxy_inference_engine.server.apis.responses.history import gather
from proxy_inference_engine.server.apis.responses.items import (
    AnyItem,
    CustomCallItem,
    FoundToolsItem,
    FunctionCallItem,
    MessageItem,
    OutputItem,
    ToolSearchItem,
    input_items,
    least_bytes,
    num_chars,
)
from proxy_inference_engine.server.apis.responses.object import response_usage
from proxy_inference_engine.server.apis.responses.schema import Conversing, ReasoningOptions, TextOptions
from proxy_inference_engine.server.apis.shared.route import ignored_headers, image_names, json_response, receive
from proxy_inference_engine.server.http.wire import new_id

_PROMPT = (
    "Summarise this conversation for somebody who has to go on with it and cannot read it. Keep the user's wishes, "
    "what was decided and done, names, numbers, and what is still open. Write the summary only."
)
_SHARE_SUMMARY = 4  # of the context, at most
_SHARE_KEPT = 4  # of the text: a last turn that is longer is summarised too
_MAX_KEPT_BYTES = 1 << 20  # a sealed item is larger than what is in it, and has to be stored as a whole
_MAX_SUMMARY_TOKENS = 2048


async def compact(http: HttpRequest) -> Response:
    exchange = await receive(http, Conversing)
    body, state, model, tenant = exchange.body, exchange.state, exchange.model, exchange.tenant
    state.drain.check()
    if body.stream:
        raise InvalidRequest("A compaction is not streamed.", param="stream")
    history = await gather(body, state.store, tenant)
    items = await exchange.off_loop(lambda: history.items, history.num_chars)
    if not items:
        raise InvalidRequest("There is nothing to compact.", param="input")
    parts = divided(items)
    most = min(model.context_tokens // _SHARE_SUMMARY, _MAX_SUMMARY_TOKENS)
    wanted = _summarising(body, min(body.max_output_tokens or most, most))
    sealer, id_ = state.sealer.of(tenant), new_id("resp_")

    def make() -> Ask:
        turns = [*make_turns(wanted, parts.older, 0, sealer), Interaction.of(Role.USER, _PROMPT)]
        return make_ask(wanted, turns, model, tenant, id_)

    stream = await exchange.answer(await exchange.off_loop(make, history.num_chars))
    summary = Answer()

    def add(step: Step) -> None:
        for _, event in step:
            summary.add(event)

    await exchange.fold(stream, add)
    sealed = sealer.seal("compaction", {"summary": summary.text.strip(), "items": input_items(parts.kept, id_)})
    item = {"id": new_id("cmp_"), "type": "compaction", "encrypted_content": sealed}
    answer = {"id": id_, "object": "response.compaction", "created_at": int(time()), "output": [item]}
    ignored = [*not_honoured(body, history, model), *image_names(stream.skipped_images)]
    return json_response({**answer, "usage": response_usage(stream.counts)}, ignored_headers(ignored))


class DividedItems(NamedTuple):
    older: Sequence[AnyItem]
    kept: Sequence[AnyItem]


def divided(items: Sequence[AnyItem]) -> DividedItems:
    """The last turn is kept as it is, unless it is most of the text, too large to be sealed, or the only one."""
    start = len(items)
    waiting: set[str] = set()  # results whose call comes earlier
    for index in range(len(items) - 1, 0, -1):
        match items[index]:
            case OutputItem(call_id=call_id) | FoundToolsItem(call_id=str(call_id)):
                waiting.add(call_id)
            case FunctionCallItem(call_id=call_id) | CustomCallItem(call_id=call_id):
                waiting.discard(call_id)
            case ToolSearchItem(call_id=str(call_id)):
                waiting.discard(call_id)
            case MessageItem(role="user") if not waiting:
                start = index
                break
    is_most = sum(map(num_chars, items[start:])) * _SHARE_KEPT > sum(map(num_chars, items))
    if is_most or sum(map(least_bytes, items[start:])) > _MAX_KEPT_BYTES:
        start = len(items)
    return DividedItems(items[:start], items[start:])


def _summarising(body: Conversing, max_tokens: int) -> Conversing:
    plain: dict[str, Any] = {
        "tools": [],
        "tool_choice": None,
        "text": TextOptions(),
        "reasoning": ReasoningOptions(),
        "enable_thinking": False,
    }
    return body.model_copy(update={**plain, "truncation": "auto", "max_output_tokens": max_tokens})
