"""The object of a response: every key always there, what the client asked for echoed."""

from collections.abc import Mapping
from typing import Any

from proxy_inference_engine.errors import ClientError, PieError, QueueFull
from proxy_inference_engine.models.profile import Profile
from proxy_inference_engine.served.stream import Counts
from proxy_inference_engine.server.apis.responses.schema import FlatJsonSchema, ResponseRequest, TextOptions
from proxy_inference_engine.server.apis.responses.tools import (
    AnyTool,
    FlatCustom,
    FlatFunction,
    HostedTool,
    NamespaceTool,
    ToolSearch,
)


class ResponseHead:
    """The constant part of a response, and the object at any moment of its life."""

    def __init__(
        self, id_: str, created_at: int, model: str, body: ResponseRequest, defaults: Profile, tier: str = "default"
    ) -> None:
        self.id = id_
        self.created_at = created_at
        self.model = model
        self._fields = {**_identity(id_, created_at, model), **_echo(body, tier), **_sampling(body, defaults)}

    def at(
        self,
        status: str,
        output: list[dict[str, Any]],
        usage: Mapping[str, Any] | None = None,
        completed_at: int | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            **self._fields,
            "status": status,
            "output": output,
            "usage": usage,
            "completed_at": completed_at,
            "error": error,
            "incomplete_details": reason,
        }


def _identity(id_: str, created_at: int, model: str) -> dict[str, Any]:
    return {
        "id": id_,
        "object": "response",
        "created_at": created_at,
        "status": "in_progress",
        "background": False,
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [],
        "usage": None,
    }


def _echo(body: ResponseRequest, tier: str) -> dict[str, Any]:
    retention = body.prompt_cache_retention
    conversation = body.conversation_id
    return {
        "background": body.background,
        "instructions": body.instructions,
        "previous_response_id": body.previous_response_id,
        "conversation": None if conversation is None else {"id": conversation},
        "tools": [_tool(tool) for tool in body.tools if not isinstance(tool, HostedTool)],
        "tool_choice": _tool_choice(body),
        "parallel_tool_calls": body.parallel_tool_calls,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "text": _text(body.text),
        "reasoning": {"effort": body.reasoning.effort, "summary": body.reasoning.summary},
        "truncation": body.truncation,
        "store": body.store,
        "metadata": body.metadata or {},
        "service_tier": tier,
        "prompt": None,
        "prompt_cache_key": body.prompt_cache_key,
        "prompt_cache_retention": "in_memory" if retention == "in-memory" else retention,
        "safety_identifier": body.safety_identifier,
        "user": body.user,
    }


def _sampling(body: ResponseRequest, defaults: Profile) -> dict[str, Any]:
    return {
        "temperature": defaults.temperature if body.temperature is None else body.temperature,
        "top_p": defaults.top_p if body.top_p is None else body.top_p,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "top_logprobs": body.top_logprobs or 0,
    }


def _tool(tool: AnyTool) -> dict[str, Any]:
    fields: dict[str, Any] = {"type": tool.type}
    match tool:
        case FlatFunction():
            names = ("name", "description", "parameters", "strict")
            return fields | {name: getattr(tool, name) for name in names}
        case NamespaceTool():
            inner = [_tool(each) for each in tool.tools if not isinstance(each, HostedTool)]
            return fields | {"name": tool.name, "description": tool.description or "", "tools": inner}
        case ToolSearch():
            return fields | tool.model_dump(exclude_none=True)
        case FlatCustom():
            wire = {"type": "text"} if tool.format is None else tool.format.model_dump()
            return fields | {"name": tool.name, "description": tool.description, "format": wire}
    return fields


def _tool_choice(body: ResponseRequest) -> Any:
    choice = body.tool_choice
    if choice is None:
        return "auto"
    return choice if isinstance(choice, str) else choice.model_dump(exclude_none=True)


def _text(text: TextOptions) -> dict[str, Any]:
    wire: dict[str, Any] = {"type": "text"}
    if isinstance(text.format, FlatJsonSchema):
        wire = text.format.model_dump(by_alias=True)
    elif text.format is not None:
        wire = text.format.model_dump()
    return {"format": wire, "verbosity": text.verbosity or "medium"}


def response_usage(counts: Counts) -> dict[str, Any]:
    """What was read and written; of an answer that was cancelled or broke, until then."""
    num_tokens = counts.num_so_far()
    return {
        "input_tokens": counts.num_prompt_tokens,
        "input_tokens_details": {"cached_tokens": counts.num_cached_tokens, "cache_write_tokens": 0},
        "output_tokens": num_tokens,
        "output_tokens_details": {"reasoning_tokens": counts.num_reasoning_tokens},
        "total_tokens": counts.num_prompt_tokens + num_tokens,
    }


def error_of(error: PieError) -> dict[str, str]:
    """`response.error` knows few codes; the `error` event before it has ours."""
    if isinstance(error, QueueFull):
        code = "rate_limit_exceeded"
    else:
        code = "invalid_prompt" if isinstance(error, ClientError) else "server_error"
    return {"code": code, "message": error.message}
