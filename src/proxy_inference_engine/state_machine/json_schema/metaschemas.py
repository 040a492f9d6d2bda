"""The drafts' own documents, for references to them: what a schema looks like, as a schema.

Written from the keywords that each draft knows. What is said here is never less than what the draft's document says;
formats are annotations there, and here too.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urldefrag

from proxy_inference_engine.state_machine.json_schema.keywords import Schema, SchemaPlace, is_known_to, own_id

_DRAFTS = {
    "http://json-schema.org/draft-04/schema": 4,
    "http://json-schema.org/draft-06/schema": 6,
    "http://json-schema.org/draft-07/schema": 7,
    "https://json-schema.org/draft/2019-09/schema": 2019,
    "https://json-schema.org/draft/2020-12/schema": 2020,
}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

_SCHEMA = {"$ref": "#"}
_SCHEMAS = {"$ref": "#/definitions/schemaArray"}
_COUNT = {"$ref": "#/definitions/nonNegativeInteger"}
_NAMES = {"$ref": "#/definitions/stringArray"}
_TYPE = {"$ref": "#/definitions/simpleTypes"}
_TEXT, _FLAG, _LIST, _NUMBER = {"type": "string"}, {"type": "boolean"}, {"type": "array"}, {"type": "number"}
_MAP = {"type": "object", "additionalProperties": _SCHEMA}
_SCALAR = {"type": ["string", "integer", "null", "boolean"]}  # items of other kinds are not kept apart

_ANCHORS = {2019: "^[A-Za-z][-A-Za-z0-9.:_]*$", 2020: "^[A-Za-z_][-A-Za-z0-9._]*$"}

# Keywords that bind nothing, and those that is_known_to does not tell apart: the draft that has them first.
_FIRST: dict[str, int] = {
    **dict.fromkeys(("$ref", "examples"), 6),
    **dict.fromkeys(("$comment", "readOnly", "contentMediaType", "contentEncoding"), 7),
    **dict.fromkeys(("$defs", "$anchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary"), 2019),
    **dict.fromkeys(("deprecated", "writeOnly", "contentSchema"), 2019),
    **dict.fromkeys(("$dynamicRef", "$dynamicAnchor"), 2020),
}
_STILL = frozenset({"dependencies"})  # no keyword any more, but the document goes on to say what it looks like


def with_metaschemas(root: Schema, found: Iterable[SchemaPlace], draft: int) -> Schema:
    """A document that carries the drafts' documents it refers to; itself where it refers to none, or has them."""
    found = list(found)
    names = [place.schema.get(keyword) for place in found for keyword in _REFERENCES]
    wanted = {urldefrag(name).url for name in names if isinstance(name, str)} & _DRAFTS.keys()
    wanted -= {urldefrag(own).url for place in found if isinstance(own := own_id(place.schema, draft), str)}
    given = root.get("$defs", {}) if isinstance(root, dict) else None
    if not wanted or not isinstance(given, dict):
        return root
    id_keyword = "id" if draft == 4 else "$id"
    return {**root, "$defs": given | {url: {id_keyword: url, **_metaschema(_DRAFTS[url])} for url in sorted(wanted)}}


def _metaschema(draft: int) -> dict[str, Any]:
    # In the order in which most people write them: keys come in it.
    said = {**_named(draft), "type": {}, **_applied(draft), **_asserted(draft)}
    properties = {
        name: one
        for name, one in said.items()
        if draft >= _FIRST.get(name, 0) and (is_known_to(draft, name) or name in _STILL)
    }
    needs_other = {"exclusiveMaximum": ["maximum"], "exclusiveMinimum": ["minimum"]}
    return {
        "type": "object" if draft == 4 else ["object", "boolean"],
        "properties": properties,
        **({"dependencies": needs_other} if draft == 4 else {}),
        "definitions": _definitions(draft),
    }


def _definitions(draft: int) -> dict[str, Any]:
    least = {"minItems": 1} if draft == 4 else {}
    return {
        "schemaArray": {"type": "array", "minItems": 1, "items": _SCHEMA},
        "nonNegativeInteger": {"type": "integer", "minimum": 0},
        "simpleTypes": {"enum": ["array", "boolean", "integer", "null", "number", "object", "string"]},
        "stringArray": {"type": "array", "items": _TEXT, **least, "uniqueItems": True},
    }


def _applied(draft: int) -> dict[str, Any]:
    """Keywords with schemas in them."""
    beside: Schema = {"anyOf": [_FLAG, _SCHEMA]} if draft == 4 else _SCHEMA
    return {
        **dict.fromkeys(("additionalItems", "additionalProperties"), beside),
        **dict.fromkeys(("not", "contains", "propertyNames", "if", "then", "else", "contentSchema"), _SCHEMA),
        **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties"), _SCHEMA),
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _SCHEMAS),
        **dict.fromkeys(("$defs", "definitions", "properties", "patternProperties", "dependentSchemas"), _MAP),
        "items": _SCHEMA if draft == 2020 else {"anyOf": [_SCHEMA, _SCHEMAS]},
        "dependencies": {"type": "object", "additionalProperties": {"anyOf": [_SCHEMA, _NAMES]}},
    }


def _asserted(draft: int) -> dict[str, Any]:
    above_zero: dict[str, Any] = {"minimum": 0, "exclusiveMinimum": True} if draft == 4 else {"exclusiveMinimum": 0}
    counted = ("Length", "Items", "Properties", "Contains")
    return {
        "type": {"anyOf": [_TYPE, {"type": "array", "items": _TYPE, "minItems": 1, "uniqueItems": True}]},
        "enum": {"type": "array", "items": _SCALAR, "minItems": 1, "uniqueItems": True} if draft <= 6 else _LIST,
        "multipleOf": {"type": "number", **above_zero},
        **dict.fromkeys(("maximum", "minimum"), _NUMBER),
        **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum"), _FLAG if draft == 4 else _NUMBER),
        **{bound + what: _COUNT for what in counted for bound in ("min", "max")},
        **dict.fromkeys(("pattern", "format"), _TEXT),
        "uniqueItems": _FLAG,
        "required": _NAMES,
        "dependentRequired": {"type": "object", "additionalProperties": _NAMES},
    }


def _named(draft: int) -> dict[str, Any]:
    """Names, and what only explains."""
    anchor: Mapping[str, Any] = {"type": "string", "pattern": _ANCHORS.get(draft, "")}
    texts = ("$schema", "$ref", "$dynamicRef", "$recursiveRef", "$comment", "title", "description")
    return {
        "id" if draft == 4 else "$id": {"type": "string", "pattern": "^[^#]*#?$"} if draft >= 2019 else _TEXT,
        **dict.fromkeys((*texts, "contentMediaType", "contentEncoding"), _TEXT),
        **dict.fromkeys(("$anchor", "$dynamicAnchor"), anchor),
        "$recursiveAnchor": anchor if draft == 2020 else _FLAG,
        **dict.fromkeys(("readOnly", "writeOnly", "deprecated"), _FLAG),
        "$vocabulary": {"type": "object", "additionalProperties": _FLAG},
        "examples": _LIST,
    }
