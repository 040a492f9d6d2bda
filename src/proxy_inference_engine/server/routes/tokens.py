"""POST /tokenize, /detokenize and /apply-template."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.server.body import body_size, read_json
from proxy_inference_engine.server.convert.messages import conversation, prompt_end
from proxy_inference_engine.server.convert.relaxed import ignored_headers
from proxy_inference_engine.server.convert.request import check_ids
from proxy_inference_engine.server.convert.tools import make_tools
from proxy_inference_engine.server.off_loop import off_loop
from proxy_inference_engine.server.routes.answering import json_response
from proxy_inference_engine.server.schemas.base import validate
from proxy_inference_engine.server.schemas.tokens import DetokenizeRequest, TemplateRequest, TokenizeRequest
from proxy_inference_engine.server.seeing import Seen, Turns, see, told
from proxy_inference_engine.server.services import Services, services_of


async def tokenize(http: HttpRequest) -> Response:
    services = services_of(http)
    body = await read_json(http.scope, http.receive, partial(validate, TokenizeRequest))
    services.check_model(body.model)
    size = body_size(http.scope)
    seen = await see(http, await off_loop(lambda: conversation(body.messages or []), size))
    tokenized = await off_loop(lambda: _tokenized(body, seen.chats[0], services), size)
    return json_response(tokenized, ignored_headers(seen.ignored))


def _tokenized(body: TokenizeRequest, turns: Turns, services: Services) -> dict[str, Any]:
    ids = _ids(body, turns, services)
    answer = {"count": len(ids), "max_model_len": services.engine.context_tokens, "tokens": list(ids)}
    if body.return_token_strs:
        pieces = (services.engine.tokenizer.token_bytes(id_) for id_ in ids)
        answer["token_strs"] = [piece.decode("utf-8", "replace") for piece in pieces]
    return answer


def _ids(body: TokenizeRequest, turns: Turns, services: Services) -> Sequence[int]:
    if body.messages is not None:
        if body.add_special_tokens:
            raise InvalidRequest(
                "'add_special_tokens' is for a prompt: the chat template writes its own.", param="add_special_tokens"
            )
        end, tools = prompt_end(turns, body), make_tools(body.tools)
        return services.renderer.chat(turns, tools=tools, variables=body.chat_template_kwargs, **end).ids
    assert body.prompt is not None
    for param, value in (("tools", body.tools), ("chat_template_kwargs", body.chat_template_kwargs)):
        if value:
            raise InvalidRequest(f"{param!r} is for messages: a prompt has no template.", param=param)
    if body.add_special_tokens is False:
        return services.engine.tokenizer.encode(body.prompt)
    return services.renderer.raw(body.prompt).ids


async def detokenize(http: HttpRequest) -> Response:
    services = services_of(http)
    body = await read_json(http.scope, http.receive, partial(validate, DetokenizeRequest))
    services.check_model(body.model)
    return json_response({"prompt": await off_loop(lambda: _text(body.tokens, services), len(body.tokens))})


def _text(ids: Sequence[int], services: Services) -> str:
    tokenizer = services.engine.tokenizer
    check_ids(ids, tokenizer, "tokens")
    return b"".join(map(tokenizer.token_bytes, ids)).decode("utf-8", "replace")


async def apply_template(http: HttpRequest) -> Response:
    services = services_of(http)
    body = await read_json(http.scope, http.receive, partial(validate, TemplateRequest))
    services.check_model(body.model)
    text, headers = await off_loop(lambda: _rendered(body, services), body_size(http.scope))
    return json_response({"prompt": text}, headers)


def _rendered(body: TemplateRequest, services: Services) -> tuple[str, Mapping[str, str]]:
    """The text, in which images are only marked, and what is said of those that are left out."""
    turns, tools = conversation(body.messages), make_tools(body.tools)
    seen = told(turns) if services.engine.eyes is None else Seen([turns])
    end = prompt_end(turns, body)
    text = services.renderer.text(seen.chats[0], tools=tools, variables=body.chat_template_kwargs, **end)
    return text, ignored_headers(seen.ignored)
