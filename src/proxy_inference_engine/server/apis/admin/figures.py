"""GET /admin/stats and /admin/cache: what the dashboard draws. Nothing is counted for it alone."""

import re
import time
from dataclasses import asdict
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.cache.view import CacheView, NodeView
from proxy_inference_engine.engine.base import ShowsCache
from proxy_inference_engine.errors import InvalidRequest, NotFound, shorten
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.apis.shared.route import json_response, state_of
from proxy_inference_engine.server.http.access import visit_of

_DEFAULT_NODES, _MAX_NODES = 200, 1000
_NUMBER = re.compile(r"[0-9]{1,4}", re.ASCII)
_MAX_TEXT_CHARS = 80


async def get_stats(http: HttpRequest) -> Response:
    """The table of /metrics as JSON, by model, with the histograms of all."""
    visit_of(http.scope).is_routine = True
    state = state_of(http)
    return json_response(
        {
            "object": "stats",
            "time": round(time.time(), 3),
            "models": {name: asdict(stats) for name, stats in state.models.stats().items()},
            "latencies": {name: latency._asdict() for name, latency in state.metrics.latencies().items()},
        }
    )


async def get_cache(http: HttpRequest) -> Response:
    """The tree of prefixes of one model. Texts are shown only to whom they belong, and only where asked for."""
    visit_of(http.scope).is_routine = True
    query = {**http.query_params}
    for name in query.keys() - {"model", "nodes", "texts"}:
        raise InvalidRequest(f"Unknown parameter: {shorten(name)!r}.", param=shorten(name), code="unknown_parameter")
    max_nodes, wants_texts = _max_nodes(query.get("nodes")), _wants_texts(query.get("texts"))
    model = _model(http, query.get("model"))
    answerer = model.answerer
    if not isinstance(answerer, ShowsCache):
        raise NotFound(f"The model {model.id!r} has no prefix cache in this process.", param="model")
    view = await answerer.show_cache(max_nodes)
    return json_response(_tree(view, model, visit_of(http.scope).tenant if wants_texts else None))


def _model(http: HttpRequest, name: str | None) -> ServedModel:
    models = state_of(http).models
    member = models.find(name or models.members[0].id)
    if member.model is None:
        raise NotFound(f"The model {member.id!r} is not loaded: it has no prefix cache.", param="model")
    return member.model


def _max_nodes(text: str | None) -> int:
    if text is None:
        return _DEFAULT_NODES
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= _MAX_NODES:
        message = f"Invalid value for 'nodes': a number from 1 to {_MAX_NODES} is expected."
        raise InvalidRequest(message, param="nodes")
    return int(text)


def _wants_texts(text: str | None) -> bool:
    if text not in (None, "true", "false"):
        raise InvalidRequest("Invalid value for 'texts': true or false is expected.", param="texts")
    return text == "true"


def _tree(view: CacheView, model: ServedModel, reader: str | None) -> dict[str, Any]:
    return {
        "object": "cache",
        "model": model.id,
        "tokens": view.num_tokens,
        "bytes": view.num_bytes,
        "max_bytes": view.max_bytes,
        "num_nodes": view.num_nodes,
        "nodes": [_node(node, model, reader) for node in view.nodes],
    }


def _node(node: NodeView, model: ServedModel, reader: str | None) -> dict[str, Any]:
    key, _, adapter = node.tenant.partition("\0")
    return {
        "id": node.id,
        "parent": node.parent,
        "key": key,
        "adapter": adapter or None,
        "start": node.start,
        "tokens": node.num_tokens,
        "bytes": node.num_bytes,
        "hits": node.num_hits,
        "texts": node.num_texts,
        "text": _text(node, model) if reader is not None and key == reader else None,
    }


def _text(node: NodeView, model: ServedModel) -> str:
    """How the text of a node begins. Images have ids below zero, and no text."""
    tokenizer = model.answerer.tokenizer
    pieces = (tokenizer.token_bytes(int(id_)) for id_ in node.first_ids if id_ >= 0)
    return b"".join(pieces).decode(errors="replace")[:_MAX_TEXT_CHARS]
