"""The bodies of /tokenize and /detokenize (as vLLM's) and /apply-template (as llama.cpp's)."""

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from proxy_inference_engine.server.schemas.base import Natural, Schema
from proxy_inference_engine.server.schemas.chat import Variables
from proxy_inference_engine.server.schemas.messages import Message, Messages
from proxy_inference_engine.server.schemas.tools import Tools

MAX_TOKEN_IDS = 4_000_000


class TemplateRequest(Schema):
    model: str | None = None
    messages: Messages
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template_kwargs: Variables = Field(default_factory=dict)
    tools: Tools = Field(default_factory=list)


class TokenizeRequest(Schema):
    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = Field(None, validate_default=True)
    add_special_tokens: bool | None = None
    return_token_strs: bool = False
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template_kwargs: Variables = Field(default_factory=dict)
    tools: Tools = Field(default_factory=list)

    @field_validator("messages")
    @classmethod
    def _one_of_two(cls, value: list[Message] | None, info: ValidationInfo) -> list[Message] | None:
        if (value is None) == (info.data.get("prompt") is None):
            raise ValueError("either a prompt or messages are needed")
        return value


class DetokenizeRequest(Schema):
    model: str | None = None
    tokens: Annotated[list[Natural], Field(max_length=MAX_TOKEN_IDS, fail_fast=True)]
