"""A client's JSON Schema as a grammar llguidance takes with its strict options. Compiling it is not done here."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proxy_inference_engine.state_machine.json_schema.document import Document
from proxy_inference_engine.state_machine.json_schema.errors import UnenforceableSchema
from proxy_inference_engine.state_machine.json_schema.rewriter import Rewriter

# Without \u: the library would take a named property for an unnamed one when its name is written with such escapes.
ESCAPES = 'nrbtf\\"'


@dataclass(frozen=True, slots=True)
class Spacing:
    """What is written between items and after keys; no other white space exists."""

    item: str = ","
    key: str = ":"


COMPACT = Spacing()


@dataclass(frozen=True, slots=True)
class JsonGrammar:
    """A schema that is ready for llguidance, and what of the client's does not bind."""

    schema: Mapping[str, Any]
    relaxed: tuple[str, ...]

    @property
    def lark(self) -> str:
        """The text that stands for this schema in a Lark rule."""
        return "%json " + json.dumps(self.schema, ensure_ascii=False, separators=(",", ":"))


def json_grammar(schema: Any, *, is_strict: bool = True, spacing: Spacing = COMPACT) -> JsonGrammar:
    """Rewrite a schema; raises UnenforceableSchema where it is malformed, impossible or, if strict, not enforceable."""
    if not isinstance(schema, dict | bool):
        raise UnenforceableSchema("", "", "The schema must be an object.")
    _check_text(schema)
    try:
        rewriter = Rewriter(Document(schema), is_strict)
        rewritten = rewriter.result()
    except RecursionError:
        raise UnenforceableSchema("", "", "The schema is nested too deeply.") from None
    options = {
        "whitespace_flexible": False,
        "item_separator": spacing.item,
        "key_separator": spacing.key,
        "json_allowed_escapes": ESCAPES,
    }
    return JsonGrammar({"x-guidance": options, **rewritten}, tuple(rewriter.relaxed))


def _check_text(schema: Any) -> None:
    """Refuse what cannot be written as JSON in UTF-8: half a surrogate pair, numbers without end, endless nesting."""
    try:
        json.dumps(schema, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        raise UnenforceableSchema("", "", "The schema cannot be written as JSON.") from None
