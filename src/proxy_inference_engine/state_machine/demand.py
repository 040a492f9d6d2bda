"""What a client demands of the shape of its answer: wire formats become this, the machine is built from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from proxy_inference_engine.interaction import TextGrammar, Tool


@dataclass(frozen=True, slots=True)
class AnyText:
    """No format."""


@dataclass(frozen=True, slots=True)
class JsonObject:
    """Any JSON object."""


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """JSON that is valid for a schema. Not strict: what cannot be enforced is left out and reported."""

    schema: Mapping[str, Any] | bool
    is_strict: bool = True


@dataclass(frozen=True, slots=True)
class Choice:
    """One of these texts."""

    choices: tuple[str, ...]


OutputFormat = AnyText | JsonObject | JsonSchema | TextGrammar | Choice


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`names`: only these tools may be called; None: all. A named choice is `required` with one name."""

    mode: Literal["auto", "required", "none"] = "auto"
    names: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    output: OutputFormat = AnyText()
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    is_parallel: bool = True  # more than one call in an answer
    max_calls: int | None = None  # at least 1; None: as many as fit
    can_reason: bool = True  # False: the client switched it off
    is_reasoning_open: bool = False  # the prompt has opened the block already
    min_reasoning_tokens: int = 0
    max_reasoning_tokens: int | None = None


class InvalidDemand(Exception):
    """The demand cannot be met: a bad grammar, a schema that cannot be enforced, an unknown tool.

    `subject` says what is wrong, for the edge to name the parameter; for "tool", `index` is the tool's.
    """

    def __init__(
        self, message: str, subject: Literal["output", "tool", "tool_choice", "reasoning"], index: int = 0
    ) -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject
        self.index = index
