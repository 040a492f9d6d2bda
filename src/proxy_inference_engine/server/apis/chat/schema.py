"""The body of POST /v1/chat/completions: what the client wrote, checked in shape only."""

from typing import Annotated, Literal

from pydantic import Field, Tag

from proxy_inference_engine.server.apis.shared.fields import (
    MAX_PARTS,
    CacheControl,
    CandidateFields,
    Natural,
    Positive,
    RequestSchema,
    Variables,
    never,
    text_or,
)
from proxy_inference_engine.server.apis.shared.messages import Messages, TextPart
from proxy_inference_engine.server.apis.shared.tools import ChatToolChoice, ChatTools, ResponseFormat


class Prediction(RequestSchema):
    """The client's guess of the answer."""

    type: Literal["content"]
    content: Annotated[
        Annotated[str, Tag("<string>")]
        | Annotated[list[TextPart], Field(min_length=1, max_length=MAX_PARTS), Tag("<parts>")],
        text_or("<parts>"),
    ]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(CandidateFields):
    messages: Messages
    cache_control: CacheControl = None
    prewarm: bool = False
    response_prefix: str = ""
    max_completion_tokens: Positive | None = None
    max_tokens: Positive | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    forced_tokens: bool = False
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False

    response_format: ResponseFormat | None = None
    tools: ChatTools = Field(default_factory=list)
    tool_choice: ChatToolChoice | None = None
    parallel_tool_calls: bool = True
    open_objects: bool = False

    enable_thinking: bool | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    reasoning_budget_tokens: Natural | None = None
    reasoning_min_tokens: Natural | None = None
    chat_template_kwargs: Variables = Field(default_factory=dict)

    prediction: Prediction | None = None
    store: bool = False

    audio: Annotated[None, never()] = None
    function_call: Annotated[None, never("none", "auto")] = None  # where there are no functions: `synonyms.py`
    functions: Annotated[None, never([])] = None
    modalities: Annotated[None, never(["text"])] = None
    moderation: Annotated[None, never()] = None
    web_search_options: Annotated[None, never()] = None
