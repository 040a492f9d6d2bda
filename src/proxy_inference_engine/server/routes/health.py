"""GET /health (the process lives), /ready (the engine makes progress) and /metrics."""

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import Unavailable
from proxy_inference_engine.server.metrics import CONTENT_TYPE
from proxy_inference_engine.server.routes.answering import json_response
from proxy_inference_engine.server.services import services_of


async def health(_http: HttpRequest) -> Response:
    return json_response({"status": "ok"})


async def ready(http: HttpRequest) -> Response:
    services = services_of(http)
    services.drain.check()
    if not services.engine.is_ready:
        raise Unavailable("The engine is not ready.")
    return json_response({"status": "ready"})


async def metrics(http: HttpRequest) -> Response:
    return Response(services_of(http).metrics.render(), media_type=CONTENT_TYPE)
