"""The end every generating route shares: stream the frames, or fold the answer while watching the client."""

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Protocol

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.server.generation import Step, Steps
from proxy_inference_engine.server.jsons import dumps
from proxy_inference_engine.server.services import Services
from proxy_inference_engine.server.sse import EventStream, Frames
from proxy_inference_engine.server.supervise import supervise


class Folded(Protocol):
    """A wire format that gathers steps of events into one body."""

    def feed(self, step: Step) -> None: ...

    def finish(self) -> dict[str, Any]: ...


def stream(services: Services, generation: Steps, frames: Frames, headers: Mapping[str, str] | None = None) -> Response:
    return EventStream(generation, frames, services.drain, services.patience, headers)


async def answer(
    request: HttpRequest,
    services: Services,
    generation: Steps,
    folded: Folded,
    headers: Mapping[str, str] | None = None,
) -> Response:
    return json_response(await fold(request, services, generation, folded), headers)


async def fold(request: HttpRequest, services: Services, generation: Steps, folded: Folded) -> dict[str, Any]:
    """The whole answer as it is written. Raises ClientGone when nobody waits for it any longer."""
    try:
        await supervise(_fold(generation, folded), request.receive, services.drain)
    finally:
        generation.cancel()
    return folded.finish()


async def _fold(generation: Steps, folded: Folded) -> None:
    async with aclosing(generation.steps()) as steps:
        async for step in steps:
            folded.feed(step)


def json_response(body: Any, headers: Mapping[str, str] | None = None) -> Response:
    return Response(dumps(body).encode(), media_type="application/json", headers=headers)
