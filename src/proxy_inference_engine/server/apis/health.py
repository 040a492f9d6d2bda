"""GET /health (the process lives), /ready (the engines make progress) and /metrics."""

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import Unavailable
from proxy_inference_engine.server.apis.shared.route import json_response, state_of
from proxy_inference_engine.server.metrics import CONTENT_TYPE

_RETRY_SECONDS = 5


async def health(_http: HttpRequest) -> Response:
    return json_response({"status": "ok"})


async def ready(http: HttpRequest) -> Response:
    state = state_of(http)
    state.drain.check()
    if not state.models.is_ready:
        raise Unavailable("The engine is not ready.", retry_after_s=_RETRY_SECONDS)
    return json_response({"status": "ready"})


async def metrics(http: HttpRequest) -> Response:
    return Response(state_of(http).render_metrics(), media_type=CONTENT_TYPE)
