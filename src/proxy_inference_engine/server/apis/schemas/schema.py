"""The body of POST /v1/schemas/check: a format as chat takes it, and instances to try it with."""

from typing import Annotated, Any

from pydantic import Field

from proxy_inference_engine.server.apis.shared.fields import RequestSchema
from proxy_inference_engine.server.apis.shared.tools import ResponseFormat

MAX_INSTANCES = 8
MAX_INSTANCE_CHARS = 16_384  # of one, as text


class FormatCheck(RequestSchema):
    model: str | None = None
    response_format: ResponseFormat
    open_objects: bool = False
    instances: Annotated[list[Any], Field(max_length=MAX_INSTANCES)] = Field(default_factory=list)
