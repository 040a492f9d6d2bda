"""GET /openapi.json: the API in OpenAPI 3.1, made from the schemas that bodies are checked with.

Each field has its meaning, and under `x-refused` what gets a 400 that names it: read off the schema, so that it cannot
say anything else than what happens.
"""

import asyncio
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine import __version__
from proxy_inference_engine.log import PACKAGE
from proxy_inference_engine.server.apis.shared.fields import RequestSchema
from proxy_inference_engine.server.http.guard import kind_of
from proxy_inference_engine.server.http.wire import dumps
from proxy_inference_engine.server.openapi.meanings import BY_NAME, BY_SCHEMA
from proxy_inference_engine.server.openapi.operations import OPERATIONS, Operation

_Json = dict[str, Any]

_REFERENCE = "#/components/schemas/{model}"
_PARAMETER = re.compile(r"\{(\w+)\}")
_ERROR: _Json = {
    "type": "object",
    "description": "What is wrong, and with which parameter.",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string", "description": "A sentence."},
                "type": {"type": "string", "description": "The kind of error."},
                "param": {"type": ["string", "null"], "description": "The parameter that is wrong."},
                "code": {"type": ["string", "null"], "description": "A word for programs."},
            },
        }
    },
}
_REFUSALS = {
    "400": "The body or the query is wrong; the error names the parameter.",
    "401": "A key is needed, and this is none.",
    "403": "The key is of another kind, or the caller is not allowed.",
    "404": "There is no such model or object.",
    "429": "A limit of the key, or of the queue, is used up; Retry-After says how long.",
    "503": "The engine or the store cannot answer now; Retry-After says how long.",
}


@cache
def text() -> bytes:
    """The whole document. Takes a moment, once."""
    return dumps(make()).encode()


async def get_openapi(_http: HttpRequest) -> Response:
    return Response(await asyncio.to_thread(text), media_type="application/json", headers={"cache-control": "no-cache"})


def make() -> _Json:
    bodies = {each.body for each in OPERATIONS.values() if each.body is not None}
    schemas = _schemas(sorted(bodies, key=lambda each: each.__name__))
    paths: dict[str, _Json] = {}
    for route, operation in OPERATIONS.items():
        method, path = route.split(" ")
        paths.setdefault(path, {})[method.lower()] = _operation(method, path, operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Proxy Inference Engine",
            "version": __version__,
            "description": "Every route of this server. null equals absent for every optional field; a field that "
            "nobody knows is refused by its name.",
        },
        "servers": [{"url": "."}],
        "tags": [{"name": tag} for tag in dict.fromkeys(each.tag for each in OPERATIONS.values())],
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Error": _ERROR},
            "responses": {code: _refused(words) for code, words in _REFUSALS.items()},
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "The API key, where the server has keys."},
                "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _operation(method: str, path: str, operation: Operation) -> _Json:
    kind = kind_of(_PARAMETER.sub("x", path))
    made: _Json = {
        "summary": operation.summary,
        "tags": [operation.tag],
        "operationId": f"{method.lower()}_{re.sub(r'[^a-z0-9]+', '_', path.lower()).strip('_') or 'page'}",
        "x-key": kind,
        "security": [] if kind == "public" else [{"key": []}, {"x-api-key": []}],
        "parameters": [*_path_parameters(path), *_query_parameters(operation)],
        "responses": _responses(operation, is_open=kind == "public"),
    }
    if operation.body is not None:
        schema = {"$ref": _REFERENCE.format(model=_name(operation.body))}
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return made


def _path_parameters(path: str) -> Iterator[_Json]:
    for name in _PARAMETER.findall(path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "description": _WORDS[name]}


def _query_parameters(operation: Operation) -> Iterator[_Json]:
    for name, meaning in operation.query.items():
        yield {"name": name, "in": "query", "schema": {"type": "string"}, "description": meaning}


_WORDS = {
    "completion_id": "The id of a stored chat.",
    "response_id": "The id of a response.",
    "conversation_id": "The id of a conversation.",
    "item_id": "The id of an item.",
    "model_id": "The name of a model; it may have slashes.",
    "request_id": "The id in the list of requests.",
    "pull_id": "The id of a download.",
    "file_id": "The id of a file.",
    "batch_id": "The id of a batch.",
    "digest": "The digest of a blob.",
    "name": "The name of a file.",
    "version": "The digest of all of the page's files.",
}


def _refused(words: str) -> _Json:
    schema = {"$ref": _REFERENCE.format(model="Error")}
    return {"description": words, "content": {"application/json": {"schema": schema}}}


def _responses(operation: Operation, *, is_open: bool) -> _Json:
    content: _Json = {"application/json": {"schema": {"type": "object"}}}
    if operation.streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    codes = ("404",) if is_open else tuple(_REFUSALS)
    refusals = {code: {"$ref": f"#/components/responses/{code}"} for code in codes}
    return {"200": {"description": "The answer.", "content": content}, **refusals}


# Schemas


def _name(model: type[BaseModel]) -> str:
    return model.__name__


def _schemas(models: list[type[RequestSchema]]) -> dict[str, _Json]:
    _, found = models_json_schema([(model, "validation") for model in models], ref_template=_REFERENCE, by_alias=True)
    schemas: dict[str, _Json] = found["$defs"]
    by_name = {_name(each): each for each in all_schemas(RequestSchema)}
    for name, schema in schemas.items():
        model = by_name.get(name)
        if model is not None:
            _explain(model, schema)
    return schemas


def all_schemas(base: type[RequestSchema]) -> Iterator[type[RequestSchema]]:
    """Every schema of this package below a base: whoever builds on the package may have more."""
    for each in base.__subclasses__():
        if each.__module__.startswith(f"{PACKAGE}."):
            yield each
            yield from all_schemas(each)


def _explain(model: type[RequestSchema], schema: _Json) -> None:
    required = set(schema.get("required", ()))
    for name, field in model.model_fields.items():
        wire = field.alias or name
        described = schema.get("properties", {}).get(wire)
        if described is None:
            continue
        described.pop("title", None)
        described["description"] = meaning(model, name)
        described["x-refused"] = refusal(described, is_required=wire in required)
        if "default" in described and described["default"] is None:
            del described["default"]
    schema.pop("title", None)


def meaning(model: type[RequestSchema], name: str) -> str:
    """What a field of a schema means: said for the schema that has it first, or by its name alone."""
    for owner in model.__mro__:
        found = BY_SCHEMA.get(f"{owner.__name__}.{name}")
        if found is not None:
            return found
    return BY_NAME[name]


def refusal(schema: _Json, *, is_required: bool) -> str:
    """What of a field is refused, in words."""
    wanted = _wanted(schema)
    start = "Missing, or not " if is_required else "Anything but "
    return f"{start}{wanted}." if wanted else ("Missing." if is_required else "Nothing.")


def _wanted(schema: _Json) -> str:
    either: list[_Json] = schema.get("anyOf") or schema.get("oneOf") or []
    parts = [part for part in either if part.get("type") != "null"]
    if parts:
        return " or ".join(dict.fromkeys(filter(None, map(_wanted, parts))))
    if "$ref" in schema:
        return f"an object of {schema['$ref'].rpartition('/')[2]}"
    if "const" in schema:
        return repr(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(map(repr, schema["enum"]))
    kind = schema.get("type")
    if kind == "null":
        return "null, or a value that asks for nothing"
    if kind == "array":
        item = _wanted(schema.get("items", {})) or "anything"
        return f"a list{_bounds(schema, 'minItems', 'maxItems', ' items')} of {item}"
    if kind in ("integer", "number"):
        return f"{'an integer' if kind == 'integer' else 'a number'}{_range(schema)}"
    if kind == "string":
        pattern = f" that matches {schema['pattern']}" if "pattern" in schema else ""
        return f"a string{_bounds(schema, 'minLength', 'maxLength', ' characters')}{pattern}"
    return {"boolean": "true or false", "object": "an object"}.get(str(kind), "")


def _range(schema: _Json) -> str:
    """Bounds that are only those of the wire's integers are not worth a word."""
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    above = "above " if "exclusiveMinimum" in schema else "from "
    low = None if low is None or low <= -(2**63) else low
    high = None if high is None or high >= 2**63 - 1 else high
    if high is None:
        return "" if low is None else f" {above}{low} on"
    return f" up to {high}" if low is None else f" {above}{low} to {high}"


def _bounds(schema: _Json, least: str, most: str, unit: str) -> str:
    low, high = schema.get(least), schema.get(most)
    if low and high:
        return f" of {low} to {high}{unit}"
    if high:
        return f" of at most {high}{unit}"
    return f" of at least {low}{unit}" if low else ""
