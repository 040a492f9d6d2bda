"""The field `response_format`: OpenAI's three kinds and two of our own."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, Tag

from proxy_inference_engine.server.schemas.base import Schema
from proxy_inference_engine.server.schemas.tools import (
    MAX_SCHEMA_BYTES,
    Definition,
    JsonSchemaObject,
    Name,
    Syntax,
    TextFormat,
    by_type,
)

MAX_CHOICES = 4096


def _bounded(choices: list[str]) -> list[str]:
    if sum(len(choice.encode()) for choice in choices) > MAX_SCHEMA_BYTES:
        raise ValueError(f"all choices together may have at most {MAX_SCHEMA_BYTES // 1024} KiB")
    return choices


class JsonObjectFormat(Schema):
    type: Literal["json_object"]


class JsonSchemaSpec(Schema):
    name: Name
    description: str | None = None
    schema_: JsonSchemaObject = Field(alias="schema")
    strict: bool | None = None


class JsonSchemaFormat(Schema):
    type: Literal["json_schema"]
    json_schema: JsonSchemaSpec


class GrammarFormat(Schema):
    type: Literal["grammar"]
    syntax: Syntax
    definition: Definition


class ChoiceFormat(Schema):
    type: Literal["choice"]
    choices: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        Field(min_length=1, max_length=MAX_CHOICES, fail_fast=True),
        AfterValidator(_bounded),
    ]


ResponseFormat = Annotated[
    Annotated[TextFormat, Tag("<text>")]
    | Annotated[JsonObjectFormat, Tag("<json_object>")]
    | Annotated[JsonSchemaFormat, Tag("<json_schema>")]
    | Annotated[GrammarFormat, Tag("<grammar>")]
    | Annotated[ChoiceFormat, Tag("<choice>")],
    by_type("text", "json_object", "json_schema", "grammar", "choice"),
]
