"""Errors and streams in the shape of Ollama's API: one JSON object a line, and `{"error": "…"}` where it fails."""

from typing import Any

from proxy_inference_engine.errors import PieError
from proxy_inference_engine.server.http.errors import WireShape
from proxy_inference_engine.server.http.wire import dumps

LINES = "application/x-ndjson"


def line(value: dict[str, Any]) -> str:
    return dumps(value) + "\n"


def _error(error: PieError, _request_id: str) -> dict[str, Any]:
    return {"error": error.message}


# A ping is a space before the next object: its clients take an empty line for an object that is none.
SHAPE = WireShape(_error, line, media=LINES.encode(), ping=" ", end="")
