"""Lists of what is stored, in pages, and updates of metadata: chats, conversations and items have them alike."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.datastructures import QueryParams

from proxy_inference_engine.errors import InvalidRequest, shorten
from proxy_inference_engine.server.apis.shared.fields import Metadata, RequestSchema, validate
from proxy_inference_engine.store import Order

T = TypeVar("T")

DEFAULT_LIMIT = 20
MAX_LIMIT = 100
MAX_FILTERS = 16
_METADATA = re.compile(r"metadata\[(.+)\]", re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,5}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PageQuery:
    after: str | None = None
    limit: int = DEFAULT_LIMIT
    order: Order = "asc"
    model: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    further: Mapping[str, str] = field(default_factory=dict)


def parse_query(
    query: QueryParams,
    *,
    has_filters: bool,
    further: Collection[str] = (),
    max_limit: int = MAX_LIMIT,
    default_order: Order = "asc",
) -> PageQuery:
    """`has_filters`: whether `model` and `metadata[key]` have a meaning; `further`: what else has one.

    Raises InvalidRequest by name.
    """
    values: dict[str, str] = {}
    metadata: dict[str, str] = {}
    known = {"after", "limit", "order", *further, *(("model",) if has_filters else ())}
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
    order = values.get("order", default_order)
    if order not in ("asc", "desc"):
        raise InvalidRequest("Invalid value for 'order': it is asc or desc.", param="order")
    return PageQuery(
        values.get("after"),
        _limit(values.get("limit"), max_limit),
        "asc" if order == "asc" else "desc",
        values.get("model"),
        metadata,
        {name: values[name] for name in further if name in values},
    )


def _limit(text: str | None, most: int) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= most:
        raise InvalidRequest(f"Invalid value for 'limit': a number from 1 to {most} is expected.", param="limit")
    return int(text)


class MetadataUpdate(RequestSchema):
    metadata: Metadata | None = None


def validate_update(data: Any) -> MetadataUpdate:
    """Metadata is all that can be changed; null empties it, so it has to be said."""
    update = validate(MetadataUpdate, data)
    if "metadata" not in data:
        raise InvalidRequest("Missing required parameter: 'metadata'.", param="metadata", code="missing_parameter")
    return update


def list_body(data: Sequence[dict[str, Any]], has_more: bool) -> dict[str, Any]:
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": list(data), "first_id": first, "last_id": last, "has_more": has_more}


def cut_page(
    items: Sequence[T], id_of: Callable[[T], str], after: str | None, limit: int
) -> tuple[list[T], bool] | None:
    """The items after the one with the id `after`, and whether more follow; None when there is no such id."""
    start = 0
    if after is not None:
        start = next((number + 1 for number, item in enumerate(items) if id_of(item) == after), -1)
        if start < 0:
            return None
    return list(items[start : start + limit]), len(items) > start + limit
