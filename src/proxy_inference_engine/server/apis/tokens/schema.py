"""The bodies of /tokenize and /detokenize (as vLLM's) and /apply-template (as llama.cpp's)."""

from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from proxy_inference_engine.server.apis.shared.fields import Natural, RequestSchema, Variables
from proxy_inference_engine.server.apis.shared.messages import ChatMessage, Messages
from proxy_inference_engine.server.apis.shared.tools import ChatTools

MAX_TOKEN_IDS = 4_000_000


class TemplateRequest(RequestSchema):
    model: str | None = None
    messages: Messages
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template_kwargs: Variables = Field(default_factory=dict)
    tools: ChatTools = Field(default_factory=list)


class TokenizeRequest(RequestSchema):
    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = Field(None, validate_default=True)
    add_special_tokens: bool | None = None
    parse_special: bool | None = None
    return_token_strs: bool = False
    with_pieces: bool = False
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template_kwargs: Variables = Field(default_factory=dict)
    tools: ChatTools = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _in_llama_cpps_words(cls, data: Any) -> Any:
        """There a text is `content`, and gets no BOS unless one is asked for."""
        if not isinstance(data, dict) or not isinstance(data.get("content"), str) or "prompt" in data:
            return data
        others = {name: value for name, value in data.items() if name not in ("content", "add_special")}
        return {"add_special_tokens": data.get("add_special", False), **others, "prompt": data["content"]}

    @field_validator("messages")
    @classmethod
    def _one_of_two(cls, value: list[ChatMessage] | None, info: ValidationInfo) -> list[ChatMessage] | None:
        if (value is None) == (info.data.get("prompt") is None):
            raise ValueError("either a prompt or messages are needed")
        return value


class DetokenizeRequest(RequestSchema):
    model: str | None = None
    tokens: Annotated[list[Natural], Field(max_length=MAX_TOKEN_IDS, fail_fast=True)]
