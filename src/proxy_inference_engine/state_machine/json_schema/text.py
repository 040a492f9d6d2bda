"""A schema as text for llguidance, and how long it may be: the client's, and what becomes of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proxy_inference_engine.state_machine.json_schema.errors import UnenforceableSchema
from proxy_inference_engine.state_machine.shapes import Shape

# Without \u: the library would take a named property for an unnamed one when its name is written with such escapes.
ESCAPES = 'nrbtf\\"'
MAX_CHARS = 1 << 20
TOO_MUCH = "The schema is too large, or its alternatives are too many."


@dataclass(frozen=True, slots=True)
class Spacing:
    """What is written between items and after keys; no other white space exists."""

    item: str = ","
    key: str = ":"


COMPACT = Spacing()


@dataclass(frozen=True, slots=True)
class JsonGrammar:
    """A schema that is ready for llguidance, what of the client's does not bind, and what a watch has to see to."""

    schema: Mapping[str, Any]
    relaxed: tuple[str, ...]
    shape: Shape | None = None

    @property
    def lark(self) -> str:
        """The text that stands for this schema in a Lark rule."""
        return "%json " + json.dumps(self.schema, ensure_ascii=False, separators=(",", ":"))


def options_of(spacing: Spacing) -> dict[str, Any]:
    """The library's options: no white space but this."""
    return {
        "whitespace_flexible": False,
        "item_separator": spacing.item,
        "key_separator": spacing.key,
        "json_allowed_escapes": ESCAPES,
    }


def check_text(schema: Any) -> None:
    """Refuse what is too long, or no JSON in UTF-8: half a surrogate pair, numbers without end, endless nesting."""
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        raise UnenforceableSchema("", "", "The schema cannot be written as JSON.") from None
    if len(text) > MAX_CHARS:
        raise UnenforceableSchema("", "", f"The schema has more than {MAX_CHARS} characters.")


def check_size(schema: Any) -> None:
    """Refuse what would be too long as text. Parts of it are shared: written out, a small schema can be gigabytes."""
    left = MAX_CHARS
    stack = [schema]
    while stack and left >= 0:
        one = stack.pop()
        left -= 2
        if isinstance(one, str):
            left -= len(one)
        elif isinstance(one, list):
            stack += one
        elif isinstance(one, dict):
            left -= sum(map(len, one))
            stack += one.values()
    if left < 0:
        raise UnenforceableSchema("", "", TOO_MUCH)
