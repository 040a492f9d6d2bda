"""Blocks that only Anthropic's own servers do something with, as text: documents, results of hosted tools, references.

What can be read is read. Of the rest the model is told that it was there, and the client that it was not looked at.
"""

import re
from collections.abc import Iterator
from typing import Any

from pydantic import ConfigDict

from proxy_inference_engine.errors import shorten
from proxy_inference_engine.server.apis.shared.fields import CacheControl, RequestSchema
from proxy_inference_engine.server.http.wire import dumps

CHANGES = frozenset({"tool_addition", "tool_removal"})  # of the tools that may be called from there on
_TYPES = re.compile(
    "document|search_result|container_upload|browser_state|tool_reference|tool_addition|tool_removal|compaction|fallback"
    "|mcp_tool_listing|server_tool_use|mcp_tool_use|[a-z_]+_tool_result"
)
_SILENT = frozenset({"fallback", "mcp_tool_listing"})  # between servers: no model is told of it
_MAX_TITLE = 200


def is_noted(kind: object) -> bool:
    return isinstance(kind, str) and len(kind) <= 64 and _TYPES.fullmatch(kind) is not None


class NotedBlock(RequestSchema):
    """Whatever else it has, for `text` to find."""

    model_config = ConfigDict(extra="allow")

    type: str
    cache_control: CacheControl = None

    @property
    def _rest(self) -> dict[str, Any]:
        return self.model_extra or {}

    @property
    def tool_name(self) -> str | None:
        """The tool that is found by name, and offered from then on, or no more."""
        name = self._rest.get("tool_name") if self.type == "tool_reference" else None
        changed = self._rest.get("tool") if self.type in CHANGES else None
        if isinstance(changed, dict) and changed.get("type") == "tool_reference":
            name = changed.get("name")
        return name if isinstance(name, str) else None

    @property
    def is_read(self) -> bool:
        """Whether all of it is in `text`."""
        if self.type == "document":
            return self._source.get("type") in ("text", "content")
        if self.type in CHANGES:
            return self.tool_name is not None
        return self.type in ("search_result", "tool_reference", "compaction", "fallback")

    @property
    def is_silent(self) -> bool:
        """Whether there is nothing to tell a model."""
        return self.type in _SILENT or (self.type in CHANGES and self.tool_name is None)

    @property
    def _source(self) -> dict[str, Any]:
        source = self._rest.get("source")
        return source if isinstance(source, dict) else {}

    @property
    def text(self) -> str:
        rest = self._rest
        match self.type:
            case "document":
                return self._document()
            case "tool_reference" | "tool_addition":
                return f"[The tool {shorten(str(self.tool_name))} can be used now.]"
            case "tool_removal":
                return f"[The tool {shorten(str(self.tool_name))} cannot be used any more.]"
            case "server_tool_use" | "mcp_tool_use":
                return f"[{shorten(str(rest.get('name')))} was called: {dumps(rest.get('input', {}))}]"
            case "search_result":
                return "\n".join((*self._titles(), *_texts(rest.get("content"))))
            case "compaction":
                return "\n".join(_texts(rest.get("content")))
        return "\n".join(_texts(rest.get("content") or rest.get("tabs"))) or f"[{self.type}]"

    def _document(self) -> str:
        source, titles = self._source, list(self._titles())
        if self.is_read:
            return "\n".join((*titles, *_texts(source.get("data") or source.get("content"))))
        kind = shorten(str(source.get("media_type") or source.get("type")))
        return f"[{' '.join(('A document,', kind, *titles))}: it cannot be read here.]"

    def _titles(self) -> Iterator[str]:
        for name in ("title", "source", "context"):
            value = self._rest.get(name)
            if isinstance(value, str) and value:
                yield value[:_MAX_TITLE]


def _texts(value: Any) -> Iterator[str]:
    """What can be read of a hosted tool's result, however it is nested."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, list):
            stack += reversed(one)
        elif isinstance(one, dict):
            names = ("title", "url", "text", "content", "stdout", "stderr", "error_code")
            stack += [one[name] for name in reversed(names) if name in one]
