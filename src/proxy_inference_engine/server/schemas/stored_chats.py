"""What comes with requests for stored chat completions: the query of a list, and the body of an update."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.datastructures import QueryParams

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.server.param import shorten
from proxy_inference_engine.server.schemas.base import Schema, validate
from proxy_inference_engine.server.schemas.generating import Metadata

DEFAULT_LIMIT = 20
MAX_LIMIT = 100
MAX_FILTERS = 16
_METADATA = re.compile(r"metadata\[(.+)\]", re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PageQuery:
    after: str | None = None
    limit: int = DEFAULT_LIMIT
    order: Literal["asc", "desc"] = "asc"
    model: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


def parse_query(query: QueryParams, *, has_filters: bool) -> PageQuery:
    """`has_filters`: whether `model` and `metadata[key]` have a meaning. Raises InvalidRequest by name."""
    values: dict[str, str] = {}
    metadata: dict[str, str] = {}
    known = {"after", "limit", "order", "model"} if has_filters else {"after", "limit", "order"}
    for name, value in query.multi_items():
        key = _METADATA.fullmatch(name) if has_filters else None
        target, place = (values, name) if key is None else (metadata, key[1])
        if key is None and name not in known:
            raise InvalidRequest(
                f"Unknown parameter: {shorten(name)!r}.", param=shorten(name), code="unknown_parameter"
            )
        if place in target:
            raise InvalidRequest(f"{shorten(name)!r} comes twice.", param=shorten(name))
        target[place] = value
    if len(metadata) > MAX_FILTERS:
        raise InvalidRequest(f"At most {MAX_FILTERS} pairs of metadata can be looked for.", param="metadata")
    order = values.get("order", "asc")
    if order not in ("asc", "desc"):
        raise InvalidRequest("Invalid value for 'order': it is asc or desc.", param="order")
    limit = _limit(values.get("limit"))
    return PageQuery(values.get("after"), limit, "asc" if order == "asc" else "desc", values.get("model"), metadata)


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= MAX_LIMIT:
        raise InvalidRequest(f"Invalid value for 'limit': a number from 1 to {MAX_LIMIT} is expected.", param="limit")
    return int(text)


class ChatUpdate(Schema):
    metadata: Metadata | None = None


def validate_update(data: Any) -> ChatUpdate:
    """Metadata is all that can be changed; null empties it, so it has to be said."""
    update = validate(ChatUpdate, data)
    if "metadata" not in data:
        raise InvalidRequest("Missing required parameter: 'metadata'.", param="metadata", code="missing_parameter")
    return update
