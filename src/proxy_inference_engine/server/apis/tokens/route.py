"""POST /tokenize, /detokenize and /apply-template."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.served.ask import Ask, ChatPrompt
from proxy_inference_engine.served.model import Counted, ServedModel
from proxy_inference_engine.served.request import check_countable, check_ids
from proxy_inference_engine.served.stream import SkippedImage
from proxy_inference_engine.server.apis.shared.messages import make_turns, prompt_end, unknown_in
from proxy_inference_engine.server.apis.shared.reasoning import template_variables
from proxy_inference_engine.server.apis.shared.route import ignored_headers, image_names, receive, write_counted
from proxy_inference_engine.server.apis.shared.tools import make_tools
from proxy_inference_engine.server.apis.tokens.schema import DetokenizeRequest, TemplateRequest, TokenizeRequest
from proxy_inference_engine.server.http.wire import JsonItems
from proxy_inference_engine.state_machine.demand import Demand

_ID_CHARS = 7  # of an id in JSON, and about as many of its text
_ID_BYTES = 36  # of an id in memory


async def tokenize(http: HttpRequest) -> Response:
    exchange = await receive(http, TokenizeRequest)
    body, model = exchange.body, exchange.model
    if body.messages is None:
        counted = Counted(await exchange.off_loop(lambda: _prompt_ids(body, model)))
    else:
        counted = await exchange.count(await exchange.off_loop(lambda: _chat_ask(body, model, exchange.tenant)))
    answer = _tokenized(counted.ids, body, model)
    num_chars = len(counted.ids) * (_ID_CHARS + body.return_token_strs * _ID_CHARS)
    headers = _headers(body, model, counted.skipped_images)
    return await exchange.write(answer, num_chars, headers, num_bytes=len(counted.ids) * _ID_BYTES)


def _headers(
    body: TokenizeRequest | TemplateRequest, model: ServedModel, skipped: Sequence[SkippedImage]
) -> Mapping[str, str]:
    unread = template_variables(body.chat_template_kwargs, model).ignored
    unknown = dict.fromkeys(unknown_in(body.messages or ()))
    return ignored_headers([*unread, *unknown, *image_names(skipped)])


def _tokenized(ids: Sequence[int], body: TokenizeRequest, model: ServedModel) -> dict[str, Any]:
    count, token_bytes = len(ids), model.answerer.tokenizer.token_bytes
    answer = {"count": count, "max_model_len": model.context_tokens, "tokens": JsonItems(count, ids.__getitem__)}
    if body.with_pieces:
        answer["tokens"] = JsonItems(count, lambda place: {"id": ids[place], "piece": _piece(token_bytes(ids[place]))})
    if body.return_token_strs:
        answer["token_strs"] = JsonItems(count, lambda place: token_bytes(ids[place]).decode("utf-8", "replace"))
    return answer


def _piece(piece: bytes) -> str | list[int]:
    """A text, or the bytes of what is only part of a character."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def _prompt_ids(body: TokenizeRequest, model: ServedModel) -> Sequence[int]:
    assert body.prompt is not None
    for param, value in (("tools", body.tools), ("chat_template_kwargs", body.chat_template_kwargs)):
        if value:
            raise InvalidRequest(f"{param!r} is for messages: a prompt has no template.", param=param)
    check_countable(len(body.prompt), model.context_tokens, "prompt")
    reads_specials, adds_bos = body.parse_special is not False, body.add_special_tokens is not False
    return model.renderer.raw(body.prompt, reads_specials=reads_specials, adds_bos=adds_bos).ids


def _chat_ask(body: TokenizeRequest | TemplateRequest, model: ServedModel, tenant: str) -> Ask:
    if isinstance(body, TokenizeRequest):
        for param, value in (("add_special_tokens", body.add_special_tokens), ("parse_special", body.parse_special)):
            if value:
                raise InvalidRequest(f"{param!r} is for a prompt: the chat template writes its own.", param=param)
    turns = make_turns(body.messages or [])
    variables = template_variables(body.chat_template_kwargs, model).readable
    chat = ChatPrompt(turns, variables, **prompt_end(turns, body))
    return Ask("", tenant, chat, demand=Demand(tools=make_tools(body.tools)))


async def detokenize(http: HttpRequest) -> Response:
    exchange = await receive(http, DetokenizeRequest)
    text = await exchange.off_loop(lambda: _text(exchange.body.tokens, exchange.model))
    return write_counted(http, {"prompt": text, "content": text}, 2 * len(text), len(text))


def _text(ids: Sequence[int], model: ServedModel) -> str:
    tokenizer = model.answerer.tokenizer
    check_ids(ids, tokenizer, "tokens")
    return b"".join(map(tokenizer.token_bytes, ids)).decode("utf-8", "replace")


async def apply_template(http: HttpRequest) -> Response:
    """The text, in which images are only marked."""
    exchange = await receive(http, TemplateRequest)
    body, model = exchange.body, exchange.model
    text, skipped = await exchange.off_loop(lambda: model.text(_chat_ask(body, model, exchange.tenant)))
    return write_counted(http, {"prompt": text}, len(text), len(text), _headers(body, model, skipped))
