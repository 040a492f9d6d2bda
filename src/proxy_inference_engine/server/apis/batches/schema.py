"""The body of POST /v1/batches."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from proxy_inference_engine.server.apis.shared.fields import Metadata, Nullable, RequestSchema

BatchEndpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"]
MIN_EXPIRY_S, MAX_EXPIRY_S = 3600, 2_592_000
MAX_WINDOW_S = 30 * 24 * 3600
_WINDOW = re.compile(r"(?P<number>[1-9][0-9]{0,4})(?P<unit>[smhd])", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}


def window_seconds(window: str) -> int:
    """Raises ValueError. OpenAI has `24h` only."""
    match = _WINDOW.fullmatch(window)
    seconds = 0 if match is None else int(match["number"]) * _UNITS[match["unit"]]
    if not 0 < seconds <= MAX_WINDOW_S:
        raise ValueError("a time such as 24h is expected, 30d at most")
    return seconds


def _checked(window: str) -> str:
    window_seconds(window)
    return window


class ExpiresAfter(Nullable):
    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=MIN_EXPIRY_S, le=MAX_EXPIRY_S)]


class BatchRequest(RequestSchema):
    input_file_id: Annotated[str, Field(min_length=1, max_length=128)]
    endpoint: BatchEndpoint
    completion_window: Annotated[str, AfterValidator(_checked)]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None
