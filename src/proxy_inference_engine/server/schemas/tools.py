"""The fields about tools: what may be called, whether it must be, and calls in a conversation's history."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from proxy_inference_engine.server.jsons import dumps
from proxy_inference_engine.server.schemas.base import Schema

MAX_TOOLS = 128
MAX_CALLS = 1024  # of one message
MAX_SCHEMA_BYTES = 256 * 1024
MAX_CALL_ID = 256

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
CallId = Annotated[str, Field(min_length=1, max_length=MAX_CALL_ID)]
Definition = Annotated[str, Field(min_length=1, max_length=MAX_SCHEMA_BYTES)]
Syntax = Literal["lark", "regex"]


def _num_bytes(schema: dict[str, Any] | None) -> int:
    return len(dumps(schema).encode())


def _bounded(schema: dict[str, Any]) -> dict[str, Any]:
    if _num_bytes(schema) > MAX_SCHEMA_BYTES:
        raise ValueError(f"a schema may have at most {MAX_SCHEMA_BYTES // 1024} KiB")
    return schema


JsonSchemaObject = Annotated[dict[str, Any], AfterValidator(_bounded)]


def by_type(*types: str, default: str | None = None) -> Discriminator:
    """Tells the members of a union by `type`; their tags are its values in angle brackets."""

    def tag(value: object) -> str | None:
        kind = value.get("type", default) if isinstance(value, dict) else None
        return f"<{kind}>" if isinstance(kind, str) and kind in types else None

    message = f"an object whose type is one of {', '.join(map(repr, types))} is expected"
    return Discriminator(tag, custom_error_type="unknown_type", custom_error_message=message)


class FunctionSpec(Schema):
    name: Name
    description: str | None = None
    parameters: JsonSchemaObject | None = None
    strict: bool | None = None


class FunctionTool(Schema):
    type: Literal["function"]
    function: FunctionSpec

    @property
    def num_schema_bytes(self) -> int:
        return _num_bytes(self.function.parameters)


class TextFormat(Schema):
    type: Literal["text"]


class GrammarSpec(Schema):
    syntax: Syntax
    definition: Definition


class GrammarFormat(Schema):
    type: Literal["grammar"]
    grammar: GrammarSpec


CustomFormat = Annotated[
    Annotated[TextFormat, Tag("<text>")] | Annotated[GrammarFormat, Tag("<grammar>")], by_type("text", "grammar")
]


class CustomSpec(Schema):
    name: Name
    description: str | None = None
    format: CustomFormat | None = None

    @property
    def grammar(self) -> GrammarSpec | None:
        return self.format.grammar if isinstance(self.format, GrammarFormat) else None


class CustomTool(Schema):
    type: Literal["custom"]
    custom: CustomSpec

    @property
    def num_schema_bytes(self) -> int:
        grammar = self.custom.grammar
        return 0 if grammar is None else len(grammar.definition.encode())


Tool = Annotated[
    Annotated[FunctionTool, Tag("<function>")] | Annotated[CustomTool, Tag("<custom>")], by_type("function", "custom")
]


def _bounded_together(tools: list[FunctionTool | CustomTool]) -> list[FunctionTool | CustomTool]:
    # They become one grammar.
    if sum(tool.num_schema_bytes for tool in tools) > MAX_SCHEMA_BYTES:
        raise ValueError(f"the schemas of all tools together may have at most {MAX_SCHEMA_BYTES // 1024} KiB")
    return tools


Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True), AfterValidator(_bounded_together)]


class Named(Schema):
    name: Name


class NamedFunction(Schema):
    type: Literal["function"]
    function: Named


class NamedCustom(Schema):
    type: Literal["custom"]
    custom: Named


Reference = Annotated[
    Annotated[NamedFunction, Tag("<function>")] | Annotated[NamedCustom, Tag("<custom>")],
    by_type("function", "custom"),
]


class Allowed(Schema):
    mode: Literal["auto", "required"]
    tools: Annotated[list[Reference], Field(min_length=1, max_length=MAX_TOOLS, fail_fast=True)]


class AllowedTools(Schema):
    type: Literal["allowed_tools"]
    allowed_tools: Allowed


def _choice_kind(value: object) -> str:
    return "<object>" if isinstance(value, dict) else "<word>"


_Object = Annotated[
    Annotated[NamedFunction, Tag("<function>")]
    | Annotated[NamedCustom, Tag("<custom>")]
    | Annotated[AllowedTools, Tag("<allowed_tools>")],
    by_type("function", "custom", "allowed_tools"),
]
ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("<word>")] | Annotated[_Object, Tag("<object>")],
    Discriminator(_choice_kind),
]


class CalledFunction(Schema):
    name: Name
    arguments: str


class FunctionCall(Schema):
    id: CallId
    type: Literal["function"] = "function"
    function: CalledFunction


class CalledCustom(Schema):
    name: Name
    input: str


class CustomCall(Schema):
    id: CallId
    type: Literal["custom"]
    custom: CalledCustom


Call = Annotated[
    Annotated[FunctionCall, Tag("<function>")] | Annotated[CustomCall, Tag("<custom>")],
    by_type("function", "custom", default="function"),
]
Calls = Annotated[list[Call], Field(max_length=MAX_CALLS, fail_fast=True)]
