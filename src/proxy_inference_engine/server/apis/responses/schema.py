"""The bodies of POST /v1/responses, …/input_tokens and …/compact: what the client wrote, checked in shape only."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from proxy_inference_engine.server.apis.responses.items import ItemList
from proxy_inference_engine.server.apis.responses.tools import FlatTools, HostedTool, Namespaced, of_type
from proxy_inference_engine.server.apis.shared.fields import (
    WORD_OR_OBJECT,
    GenerationFields,
    Label,
    Natural,
    Nullable,
    Positive,
    Variables,
    never,
)
from proxy_inference_engine.server.apis.shared.tools import (
    MAX_TOOLS,
    JsonObjectFormat,
    JsonSchemaObject,
    TextFormat,
    ToolName,
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


class NamedTool(Namespaced):
    type: Literal["function", "custom"]
    name: ToolName


ToolReference = Annotated[
    Annotated[NamedTool, Tag("<function>")]
    | Annotated[NamedTool, Tag("<custom>")]
    | Annotated[HostedTool, Tag("<other>")],
    of_type("function", "custom"),
]


class FlatAllowedTools(Nullable):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[ToolReference], Field(min_length=1, max_length=MAX_TOOLS, fail_fast=True)]


_Choice = Annotated[
    Annotated[NamedTool, Tag("<function>")]
    | Annotated[NamedTool, Tag("<custom>")]
    | Annotated[FlatAllowedTools, Tag("<allowed_tools>")]
    | Annotated[HostedTool, Tag("<other>")],
    of_type("function", "custom", "allowed_tools"),
]
FlatToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("<word>")] | Annotated[_Choice, Tag("<object>")],
    WORD_OR_OBJECT,
]


class FlatJsonSchema(Nullable):
    type: Literal["json_schema"]
    name: ToolName
    description: str | None = None
    schema_: JsonSchemaObject = Field(alias="schema")
    strict: bool | None = None


TextFormats = TextFormat | JsonObjectFormat | FlatJsonSchema


class TextOptions(Nullable):
    format: (
        Annotated[
            Annotated[TextFormat, Tag("<text>")]
            | Annotated[JsonObjectFormat, Tag("<json_object>")]
            | Annotated[FlatJsonSchema, Tag("<json_schema>")],
            by_type("text", "json_object", "json_schema"),
        ]
        | None
    ) = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(Nullable):
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


ResponseInput = Annotated[
    Annotated[str, Tag("<string>")] | Annotated[ItemList, Tag("<items>")], Discriminator(_input_kind)
]


class Conversing(GenerationFields):
    """What is said to the model: shared by answering, counting and compacting."""

    n: Annotated[int, Field(ge=1, le=1)] = 1
    input: ResponseInput = Field(default_factory=list)
    instructions: str | None = None
    previous_response_id: Annotated[str, Field(max_length=128)] | None = None
    conversation: (
        Annotated[Annotated[Label, Tag("<word>")] | Annotated[ConversationId, Tag("<object>")], WORD_OR_OBJECT] | None
    ) = None
    tools: FlatTools = Field(default_factory=list)
    tool_choice: FlatToolChoice | None = None
    parallel_tool_calls: bool = True
    text: TextOptions = Field(default_factory=TextOptions)
    reasoning: ReasoningOptions = Field(default_factory=ReasoningOptions)
    truncation: Literal["auto", "disabled"] = "disabled"
    max_output_tokens: Positive | None = None
    max_tool_calls: Natural | None = None
    open_objects: bool = False
    continue_final_message: bool = False

    enable_thinking: bool | None = None
    reasoning_budget_tokens: Natural | None = None
    reasoning_min_tokens: Natural | None = None
    chat_template_kwargs: Variables = Field(default_factory=dict)

    verbosity: Annotated[None, never()] = None
    prompt: Annotated[None, never()] = None
    moderation: Annotated[None, never()] = None

    @classmethod
    def placed(cls, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        match fields:
            case {"response_format": {"type": "json_schema", "json_schema": dict() as spec}}:
                return {"text": {"format": {"type": "json_schema", **spec}}}
            case {"response_format": {"type": "json_object"} as kind}:
                return {"text": {"format": kind}}
            case {"max_tokens": limit}:
                return {"max_output_tokens": limit}
            case {"logprobs": number}:
                return {"top_logprobs": number}
        return fields

    @property
    def conversation_id(self) -> str | None:
        return self.conversation.id if isinstance(self.conversation, ConversationId) else self.conversation

    @property
    def reasoning_effort(self) -> Effort | None:
        return self.reasoning.effort

    @property
    def num_top_logprobs(self) -> int | None:
        """None: no log-probabilities were asked for."""
        return None


class ResponseRequest(Conversing):
    store: bool = True
    background: bool = False
    include: Annotated[list[Include], Field(max_length=16)] = Field(default_factory=list)
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    forced_tokens: bool = False
    context_management: Annotated[None, never([])] = None

    @property
    def num_top_logprobs(self) -> int | None:
        return self.top_logprobs or (0 if "message.output_text.logprobs" in self.include else None)
