"""GET /v1/models and /v1/models/{id}: the served model, and the other names it has."""

from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import NotFound
from proxy_inference_engine.server.routes.answering import json_response
from proxy_inference_engine.server.services import ALIAS, Services, services_of


async def list_models(http: HttpRequest) -> Response:
    services = services_of(http)
    names = (services.model_id, *services.aliases.names)
    return json_response({"object": "list", "data": [_model(services, name) for name in dict.fromkeys(names)]})


async def get_model(http: HttpRequest) -> Response:
    services = services_of(http)
    name = http.path_params["model_id"]
    services.check_model(name)
    return json_response(_model(services, services.model_id if name == ALIAS else name))


async def delete_model(http: HttpRequest) -> Response:
    """OpenAI deletes what was fine-tuned. There is no such model here, whatever its name."""
    name = http.path_params["model_id"]
    raise NotFound(f"There is no fine-tuned model {name[:80]!r}, and no other can be deleted.")


def _model(services: Services, name: str) -> dict[str, Any]:
    model = {
        "id": name,
        "object": "model",
        "created": services.created,
        "owned_by": "proxy-inference-engine",
        "context_length": services.engine.context_tokens,
        "state": "ready" if services.engine.is_ready else "unavailable",
    }
    return model if name == services.model_id else {**model, "alias_of": services.model_id}
