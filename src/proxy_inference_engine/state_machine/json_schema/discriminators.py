"""OpenAPI 3.0's `discriminator` beside alternatives: the names that say which of them a value is meant for.

It never lets through what the alternatives do not. Only for documents that declare no draft.
"""

from collections.abc import Mapping
from typing import Any

from proxy_inference_engine.state_machine.json_schema.disjointness import conjuncts, property_in
from proxy_inference_engine.state_machine.json_schema.document import Document
from proxy_inference_engine.state_machine.json_schema.keywords import ASSERTIONS, Schema, values_of


def tagged(options: list[Schema], schema: Mapping[str, Any], document: Document) -> list[Schema]:
    """Alternatives of a schema with what its discriminator says of each: the names that the property may have."""
    told = schema.get("discriminator")
    if not isinstance(told, dict) or not isinstance(told.get("propertyName"), str) or "$schema" in document.root:
        return options
    if not all(isinstance(option, dict) and option.keys() & ASSERTIONS == {"$ref"} for option in options):
        return options  # schemas without a name are none that a discriminator could mean
    mapping = told.get("mapping")
    names = mapping if isinstance(mapping, dict) else {}
    return [_tagged(option, told["propertyName"], names, document) for option in options]


def _tagged(option: Mapping[str, Any], tag: str, mapping: Mapping[str, Any], document: Document) -> Schema:
    parts = conjuncts(option, document) or []
    if not any(tag in part.get("properties", {}) for part in parts):
        return option
    known = conjuncts(property_in(parts, tag, document), document)
    if known is None or any(values_of(part, document.draft) is not None for part in known):
        return option  # it says itself what stands there
    own = option["$ref"].rpartition("/")[2]
    document.spend(len(mapping))
    names = [name for name, target in mapping.items() if target in (option["$ref"], own)] or [own]
    return {"allOf": [option, {"properties": {tag: {"enum": names}}, "required": [tag]}]}
