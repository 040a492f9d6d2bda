"""The bodies of POST /v1/responses, …/input_tokens and …/compact: what the client wrote, proved in shape only."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag

from proxy_inference_engine.server.jsons import dumps
from proxy_inference_engine.server.schemas.base import Label, Natural, Positive, never
from proxy_inference_engine.server.schemas.formats import JsonObjectFormat
from proxy_inference_engine.server.schemas.generating import Generating
from proxy_inference_engine.server.schemas.items import Items, Nullable
from proxy_inference_engine.server.schemas.tools import (
    MAX_SCHEMA_BYTES,
    MAX_TOOLS,
    Definition,
    JsonSchemaObject,
    Name,
    Syntax,
    TextFormat,
    by_type,
)

Include = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class _Deferrable(Nullable):
    defer_loading: bool | None = None  # everything is loaded at once
    allowed_callers: Annotated[None, never(["direct"], ["direct", "programmatic"])] = None


class FunctionTool(_Deferrable):
    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: JsonSchemaObject | None = None
    strict: bool | None = None
    output_schema: dict[str, Any] | None = None  # what the tool gives is the client's affair

    @property
    def num_schema_bytes(self) -> int:
        return len(dumps(self.parameters).encode())


class GrammarFormat(Nullable):
    type: Literal["grammar"]
    syntax: Syntax
    definition: Definition


class CustomTool(_Deferrable):
    type: Literal["custom"]
    name: Name
    description: str | None = None
    format: (
        Annotated[
            Annotated[TextFormat, Tag("<text>")] | Annotated[GrammarFormat, Tag("<grammar>")],
            by_type("text", "grammar"),
        ]
        | None
    ) = None

    @property
    def num_schema_bytes(self) -> int:
        return len(self.format.definition.encode()) if isinstance(self.format, GrammarFormat) else 0


class Other(Nullable):
    """A tool, or a choice of one, that some other server hosts."""

    model_config = ConfigDict(extra="allow")
    type: Annotated[str, Field(min_length=1, max_length=64)]

    @property
    def num_schema_bytes(self) -> int:
        return 0


def _of_type(*types: str) -> Discriminator:
    def tag(value: object) -> str:
        # It also tells apart what is proved already, when that is written out.
        kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
        return f"<{kind}>" if isinstance(kind, str) and kind in types else "<other>"

    return Discriminator(tag)


AnyTool = FunctionTool | CustomTool | Other
Tool = Annotated[
    Annotated[FunctionTool, Tag("<function>")]
    | Annotated[CustomTool, Tag("<custom>")]
    | Annotated[Other, Tag("<other>")],
    _of_type("function", "custom"),
]


def _bounded_together(tools: list[AnyTool]) -> list[AnyTool]:
    # They become one grammar.
    if sum(tool.num_schema_bytes for tool in tools) > MAX_SCHEMA_BYTES:
        raise ValueError(f"the schemas of all tools together may have at most {MAX_SCHEMA_BYTES // 1024} KiB")
    return tools


Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True), AfterValidator(_bounded_together)]


class Named(Nullable):
    type: Literal["function", "custom"]
    name: Name


Reference = Annotated[
    Annotated[Named, Tag("<function>")] | Annotated[Named, Tag("<custom>")] | Annotated[Other, Tag("<other>")],
    _of_type("function", "custom"),
]


class AllowedTools(Nullable):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[Reference], Field(min_length=1, max_length=MAX_TOOLS, fail_fast=True)]


def _is_object(value: object) -> str:
    return "<object>" if isinstance(value, dict) else "<word>"


_Choice = Annotated[
    Annotated[Named, Tag("<function>")]
    | Annotated[Named, Tag("<custom>")]
    | Annotated[AllowedTools, Tag("<allowed_tools>")]
    | Annotated[Other, Tag("<other>")],
    _of_type("function", "custom", "allowed_tools"),
]
ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("<word>")] | Annotated[_Choice, Tag("<object>")],
    Discriminator(_is_object),
]


class JsonSchemaFormat(Nullable):
    type: Literal["json_schema"]
    name: Name
    description: str | None = None
    schema_: JsonSchemaObject = Field(alias="schema")
    strict: bool | None = None


Format = TextFormat | JsonObjectFormat | JsonSchemaFormat


class Text(Nullable):
    format: (
        Annotated[
            Annotated[TextFormat, Tag("<text>")]
            | Annotated[JsonObjectFormat, Tag("<json_object>")]
            | Annotated[JsonSchemaFormat, Tag("<json_schema>")],
            by_type("text", "json_object", "json_schema"),
        ]
        | None
    ) = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(Nullable):
    """How much, as in chat. Summaries are never written: what the model thought is shown as it is."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: Annotated[None, never("standard")] = None


class ConversationId(Nullable):
    id: Annotated[str, Field(min_length=1, max_length=128)]


def _input_kind(value: object) -> str:
    return "<items>" if isinstance(value, list) else "<string>"


Input = Annotated[Annotated[str, Tag("<string>")] | Annotated[Items, Tag("<items>")], Discriminator(_input_kind)]


class Conversing(Generating):
    """What is said to the model: shared by answering, counting and compacting."""

    model: str = "default"
    n: Annotated[int, Field(ge=1, le=1)] = 1
    input: Input = Field(default_factory=list)
    instructions: str | None = None
    previous_response_id: Annotated[str, Field(max_length=128)] | None = None
    conversation: (
        Annotated[
            Annotated[Label, Tag("<word>")] | Annotated[ConversationId, Tag("<object>")], Discriminator(_is_object)
        ]
        | None
    ) = None
    tools: Tools = Field(default_factory=list)
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool = True
    text: Text = Field(default_factory=Text)
    reasoning: Reasoning = Field(default_factory=Reasoning)
    truncation: Literal["auto", "disabled"] = "disabled"
    max_output_tokens: Positive | None = None
    max_tool_calls: Natural | None = None

    enable_thinking: bool | None = None
    reasoning_budget_tokens: Natural | None = None
    reasoning_min_tokens: Natural | None = None
    chat_template_kwargs: Annotated[dict[str, Any], Field(max_length=64)] = Field(default_factory=dict)

    verbosity: Annotated[None, never()] = None
    prompt: Annotated[None, never()] = None
    moderation: Annotated[None, never()] = None

    @property
    def conversation_id(self) -> str | None:
        return self.conversation.id if isinstance(self.conversation, ConversationId) else self.conversation

    @property
    def reasoning_effort(self) -> Effort | None:
        return self.reasoning.effort

    def without_effort(self) -> Self:
        return self.model_copy(update={"reasoning": self.reasoning.model_copy(update={"effort": None})})

    @property
    def num_top_logprobs(self) -> int | None:
        """None: no log-probabilities were asked for."""
        return None


class ResponseRequest(Conversing):
    model: str
    store: bool = True
    background: bool = False
    include: Annotated[list[Include], Field(max_length=16)] = Field(default_factory=list)
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    context_management: Annotated[None, never([])] = None

    @property
    def num_top_logprobs(self) -> int | None:
        return self.top_logprobs or (0 if "message.output_text.logprobs" in self.include else None)


class CompactRequest(Conversing):
    model: str
