"""What comes with requests for conversations: their items and metadata, and the query of a list of items."""

from dataclasses import replace
from typing import Annotated, get_args

from pydantic import Field
from starlette.datastructures import QueryParams

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.server.param import shorten
from proxy_inference_engine.server.schemas.base import Schema
from proxy_inference_engine.server.schemas.generating import Metadata
from proxy_inference_engine.server.schemas.items import Item
from proxy_inference_engine.server.schemas.responses import Include
from proxy_inference_engine.server.schemas.stored_chats import PageQuery, parse_query

MAX_NEW_ITEMS = 20
_INCLUDE = ("include", "include[]")
_INCLUDABLE = frozenset(get_args(Include))


class NewConversation(Schema):
    items: Annotated[list[Item], Field(max_length=MAX_NEW_ITEMS)] = Field(default_factory=list)
    metadata: Metadata = Field(default_factory=dict)


class NewItems(Schema):
    items: Annotated[list[Item], Field(min_length=1, max_length=MAX_NEW_ITEMS)]


def check_include(query: QueryParams) -> QueryParams:
    """The query without `include`, which adds nothing here: an item comes back with all it was stored with."""
    for name, value in query.multi_items():
        if name in _INCLUDE and value not in _INCLUDABLE:
            raise InvalidRequest(f"Invalid value for 'include': {shorten(value)!r} is not known.", param="include")
    return QueryParams([pair for pair in query.multi_items() if pair[0] not in _INCLUDE])


def check_only_include(query: QueryParams) -> None:
    for name in check_include(query):
        raise InvalidRequest(f"Unknown parameter: {shorten(name)!r}.", param=shorten(name), code="unknown_parameter")


def parse_items_query(query: QueryParams) -> PageQuery:
    """The newest items come first unless the client says otherwise."""
    rest = check_include(query)
    page = parse_query(rest, has_filters=False)
    return page if "order" in rest else replace(page, order="desc")
