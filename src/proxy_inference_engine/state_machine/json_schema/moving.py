"""A document, or a part of it, among the definitions of another document, where its references still lead."""

from collections.abc import Mapping
from typing import Any

WHOLE = "whole"  # the definition that a document becomes


def rooted(value: Any) -> Any:
    """A document's value whose references still lead there once the document is the definition `WHOLE` of another."""
    if isinstance(value, Mapping):
        return {key: _moved(each) if key == "$ref" else rooted(each) for key, each in value.items()}
    return [rooted(each) for each in value] if isinstance(value, list | tuple) else value


def _moved(reference: Any) -> Any:
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return reference
    return f"#/$defs/{WHOLE}{reference[1:]}"
