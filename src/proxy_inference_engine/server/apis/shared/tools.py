"""Tools as chat has them: what may be called, whether it must be, and calls in a conversation's history.

Names, limits and formats here serve the other APIs too.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Protocol, TypeVar, assert_never

from pydantic import AfterValidator, Discriminator, Field, Tag

from proxy_inference_engine.errors import PARAM, InvalidRequest
from proxy_inference_engine.interaction import TextGrammar, Tool, ToolKind
from proxy_inference_engine.server.apis.shared.fields import WORD_OR_OBJECT, CacheControl, OpenSchema, RequestSchema
from proxy_inference_engine.server.http.wire import dumps
from proxy_inference_engine.state_machine.demand import (
    AnyText,
    JsonObject,
    JsonSchema,
    ListedText,
    OutputFormat,
    TextWithout,
    ToolChoice,
)

MAX_TOOLS = 128
MAX_TEXTS = 4096  # to choose from
MAX_CALLS = 1024  # of one message
MAX_SCHEMA_BYTES = 256 * 1024
MAX_CALL_ID = 256
_PARAM = "tool_choice"

ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
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


class FunctionSpec(RequestSchema):
    name: ToolName
    description: str | None = None
    parameters: JsonSchemaObject | None = None
    strict: bool | None = None


class ChatFunction(RequestSchema):
    type: Literal["function"]
    function: FunctionSpec
    cache_control: CacheControl = None

    @property
    def num_schema_bytes(self) -> int:
        return _num_bytes(self.function.parameters)


class TextFormat(RequestSchema):
    type: Literal["text"]


class JsonObjectFormat(RequestSchema):
    type: Literal["json_object"]


def _bounded_choices(choices: list[str]) -> list[str]:
    if sum(len(choice.encode()) for choice in choices) > MAX_SCHEMA_BYTES:
        raise ValueError(f"all choices together may have at most {MAX_SCHEMA_BYTES // 1024} KiB")
    return choices


class JsonSchemaSpec(RequestSchema):
    name: ToolName
    description: str | None = None
    schema_: JsonSchemaObject = Field(alias="schema")
    strict: bool | None = None


class JsonSchemaFormat(RequestSchema):
    type: Literal["json_schema"]
    json_schema: JsonSchemaSpec


class GrammarFormat(RequestSchema):
    type: Literal["grammar"]
    syntax: Syntax
    definition: Definition


class ChoiceFormat(RequestSchema):
    type: Literal["choice"]
    choices: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        Field(min_length=1, max_length=MAX_TEXTS, fail_fast=True),
        AfterValidator(_bounded_choices),
    ]


ResponseFormat = Annotated[
    Annotated[TextFormat, Tag("<text>")]
    | Annotated[JsonObjectFormat, Tag("<json_object>")]
    | Annotated[JsonSchemaFormat, Tag("<json_schema>")]
    | Annotated[GrammarFormat, Tag("<grammar>")]
    | Annotated[ChoiceFormat, Tag("<choice>")],
    by_type("text", "json_object", "json_schema", "grammar", "choice"),
]


class GrammarSpec(RequestSchema):
    syntax: Syntax
    definition: Definition


class CustomGrammar(RequestSchema):
    type: Literal["grammar"]
    grammar: GrammarSpec


CustomFormat = Annotated[
    Annotated[TextFormat, Tag("<text>")] | Annotated[CustomGrammar, Tag("<grammar>")], by_type("text", "grammar")
]


class CustomSpec(RequestSchema):
    name: ToolName
    description: str | None = None
    format: CustomFormat | None = None

    @property
    def grammar(self) -> GrammarSpec | None:
        return self.format.grammar if isinstance(self.format, CustomGrammar) else None


class ChatCustom(RequestSchema):
    type: Literal["custom"]
    custom: CustomSpec

    @property
    def num_schema_bytes(self) -> int:
        grammar = self.custom.grammar
        return 0 if grammar is None else len(grammar.definition.encode())


ChatTool = Annotated[
    Annotated[ChatFunction, Tag("<function>")] | Annotated[ChatCustom, Tag("<custom>")], by_type("function", "custom")
]


class _Measured(Protocol):
    @property
    def num_schema_bytes(self) -> int: ...


ToolT = TypeVar("ToolT", bound=_Measured)


def bounded_together(tools: list[ToolT]) -> list[ToolT]:
    """The tools, if their schemas are not too large together: in every API they become one grammar."""
    if sum(tool.num_schema_bytes for tool in tools) > MAX_SCHEMA_BYTES:
        raise ValueError(f"the schemas of all tools together may have at most {MAX_SCHEMA_BYTES // 1024} KiB")
    return tools


ChatTools = Annotated[list[ChatTool], Field(max_length=MAX_TOOLS, fail_fast=True), AfterValidator(bounded_together)]


class Named(RequestSchema):
    name: ToolName


class NamedFunction(RequestSchema):
    type: Literal["function"]
    function: Named


class NamedCustom(RequestSchema):
    type: Literal["custom"]
    custom: Named


Reference = Annotated[
    Annotated[NamedFunction, Tag("<function>")] | Annotated[NamedCustom, Tag("<custom>")],
    by_type("function", "custom"),
]


class AllowedNames(RequestSchema):
    mode: Literal["auto", "required"]
    tools: Annotated[list[Reference], Field(min_length=1, max_length=MAX_TOOLS, fail_fast=True)]


class AllowedTools(RequestSchema):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedNames


_Object = Annotated[
    Annotated[NamedFunction, Tag("<function>")]
    | Annotated[NamedCustom, Tag("<custom>")]
    | Annotated[AllowedTools, Tag("<allowed_tools>")],
    by_type("function", "custom", "allowed_tools"),
]
ChatToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("<word>")] | Annotated[_Object, Tag("<object>")],
    WORD_OR_OBJECT,
]


ToolDirective = Literal["none", "auto", "required"] | NamedFunction | NamedCustom | AllowedTools


class CalledFunction(OpenSchema):
    name: ToolName
    arguments: str


class FunctionCall(OpenSchema):
    id: CallId
    type: Literal["function"] = "function"
    function: CalledFunction


class CalledCustom(OpenSchema):
    name: ToolName
    input: str


class CustomCall(OpenSchema):
    id: CallId
    type: Literal["custom"]
    custom: CalledCustom


Call = Annotated[
    Annotated[FunctionCall, Tag("<function>")] | Annotated[CustomCall, Tag("<custom>")],
    by_type("function", "custom", default="function"),
]
Calls = Annotated[list[Call], Field(max_length=MAX_CALLS, fail_fast=True)]


def make_tools(tools: Sequence[ChatFunction | ChatCustom]) -> tuple[Tool, ...]:
    """The tools, in their order. Names are unique whatever the kind, since a call says nothing else."""
    made = tuple(_custom(tool) if isinstance(tool, ChatCustom) else _function(tool) for tool in tools)
    seen: set[str] = set()
    for index, tool in enumerate(made):
        if tool.name in seen:
            raise InvalidRequest(
                f"Two tools have the name {tool.name!r}.", param=f"tools[{index}].{tool.kind.value}.name"
            )
        seen.add(tool.name)
    return made


def _function(tool: ChatFunction) -> Tool:
    spec = tool.function
    return Tool(spec.name, spec.description or "", spec.parameters, is_strict=bool(spec.strict))


def _custom(tool: ChatCustom) -> Tool:
    spec = tool.custom
    grammar = None if spec.grammar is None else TextGrammar(spec.grammar.syntax, spec.grammar.definition)
    return Tool(spec.name, spec.description or "", kind=ToolKind.CUSTOM, grammar=grammar)


def make_tool_choice(choice: ToolDirective, tools: Sequence[Tool]) -> ToolChoice:
    match choice:
        case "none" | "auto" as mode:
            return ToolChoice(mode)
        case "required":
            _require(tools)
            return ToolChoice("required")
        case AllowedTools(allowed_tools=allowed):
            return ToolChoice(allowed.mode, _known(allowed.tools, tools))
        case named:
            return ToolChoice("required", _known([named], tools))


def _known(references: Iterable[NamedFunction | NamedCustom], tools: Sequence[Tool]) -> frozenset[str]:
    _require(tools)
    there = {(tool.kind, tool.name) for tool in tools}
    wanted = [_target(reference) for reference in references]
    for kind, name in wanted:
        if (kind, name) not in there:
            raise InvalidRequest(f"'tools' has no {kind.value} tool {name!r}.", param=_PARAM)
    return frozenset(name for _, name in wanted)


def _target(reference: NamedFunction | NamedCustom) -> tuple[ToolKind, str]:
    if isinstance(reference, NamedCustom):
        return ToolKind.CUSTOM, reference.custom.name
    return ToolKind.FUNCTION, reference.function.name


def _require(tools: Sequence[Tool]) -> None:
    if not tools:
        raise InvalidRequest(f"{PARAM} asks for a call, but there are no tools.", param=_PARAM)


AnyFormat = TextFormat | JsonObjectFormat | JsonSchemaFormat | GrammarFormat | ChoiceFormat


def make_output(wanted: AnyFormat | None, banned: Sequence[str] = ()) -> OutputFormat:
    if banned:
        if wanted is not None and not isinstance(wanted, TextFormat):
            raise InvalidRequest(f"{PARAM} is for text: 'response_format' binds it already.", param="banned_strings")
        return TextWithout(tuple(banned))
    match wanted:
        case None | TextFormat():
            return AnyText()
        case JsonObjectFormat():
            return JsonObject()
        case JsonSchemaFormat(json_schema=spec):
            return JsonSchema(spec.schema_, is_strict=spec.strict is not False)
        case GrammarFormat(syntax=syntax, definition=definition):
            return TextGrammar(syntax, definition)
        case ChoiceFormat(choices=choices):
            return ListedText(tuple(choices))
        case _:
            assert_never(wanted)


def name_output(output: OutputFormat) -> str:
    """The parameter that a format comes from."""
    return _OUTPUT_PARAMS.get(type(output), "response_format")


_OUTPUT_PARAMS: dict[type, str] = {
    JsonSchema: "response_format.json_schema.schema",
    TextGrammar: "response_format.definition",
    ListedText: "response_format.choices",
    TextWithout: "banned_strings",
}
