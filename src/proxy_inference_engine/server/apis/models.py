"""GET /v1/models and /v1/models/{id}: the served models, and the other names they have."""

from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import NotFound
from proxy_inference_engine.pool.member import Member
from proxy_inference_engine.pool.names import DEFAULT
from proxy_inference_engine.server.apis.shared.route import json_response, state_of


async def list_models(http: HttpRequest) -> Response:
    names = state_of(http).models.names
    listed = [_model(member, name) for name, member in names.items()]
    pages = {"has_more": False, "first_id": listed[0]["id"], "last_id": listed[-1]["id"]}
    return json_response({"object": "list", "data": listed, **pages})


async def get_model(http: HttpRequest) -> Response:
    name = http.path_params["model_id"]
    member = state_of(http).models.find(name)
    return json_response(_model(member, member.id if name == DEFAULT else name))


async def delete_model(http: HttpRequest) -> Response:
    """OpenAI deletes what was fine-tuned. There is no such model here, whatever its name."""
    name = http.path_params["model_id"]
    raise NotFound(f"There is no fine-tuned model {name[:80]!r}, and no other can be deleted.")


def _model(member: Member, name: str) -> dict[str, Any]:
    model = member.model
    context = member.entry.config.context if model is None else model.context_tokens
    body: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": member.created,
        "owned_by": "proxy-inference-engine",
        # The same in Anthropic's words.
        "type": "model",
        "display_name": name,
        "created_at": datetime.fromtimestamp(member.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": context,
        "max_tokens": context,
        "context_length": context,
        "state": _state(member),
        "memory_bytes": member.num_bytes or None,
        "last_used_at": member.used_at,
    }
    if name == member.id:
        return body
    is_adapter = name in {f"{member.id}:{adapter}" for adapter in member.entry.config.adapters or ()}
    return {**body, "parent" if is_adapter else "alias_of": member.id}


def _state(member: Member) -> str:
    if member.model is None or member.state != "ready":
        return member.state
    return "ready" if member.model.answerer.is_ready else "unavailable"
