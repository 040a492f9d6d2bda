"""GET /v1/models and /v1/models/{id}."""

from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.server.routes.answering import json_response
from proxy_inference_engine.server.services import Services, services_of


async def list_models(http: HttpRequest) -> Response:
    return json_response({"object": "list", "data": [_model(services_of(http))]})


async def get_model(http: HttpRequest) -> Response:
    services = services_of(http)
    services.check_model(http.path_params["model_id"])
    return json_response(_model(services))


def _model(services: Services) -> dict[str, Any]:
    return {
        "id": services.model_id,
        "object": "model",
        "created": services.created,
        "owned_by": "proxy-inference-engine",
        "context_length": services.engine.context_tokens,
        "state": "ready" if services.engine.is_ready else "unavailable",
    }
