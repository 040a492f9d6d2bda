"""What a client demands of the shape of its answer: wire formats become this, the machine is built from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from proxy_inference_engine.interaction import TextGrammar, Tool

_MAX_MESSAGE = 1_000  # characters


@dataclass(frozen=True, slots=True)
class AnyText:
    """Text of any kind: no format is demanded."""


@dataclass(frozen=True, slots=True)
class JsonObject:
    """Any JSON object."""


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """JSON that is valid for a schema. Not strict: what cannot be enforced is left out and reported."""

    schema: Mapping[str, Any] | bool
    is_strict: bool = True


@dataclass(frozen=True, slots=True)
class ListedText:
    """One text of a list."""

    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextWithout:
    """Text that contains none of these strings, however they are capitalised."""

    strings: tuple[str, ...]


OutputFormat = AnyText | TextWithout | JsonObject | JsonSchema | TextGrammar | ListedText


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`names`: only these tools may be called; None: all. A named choice is `required` with one name."""

    mode: Literal["auto", "required", "none"] = "auto"
    names: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """All that a client demands of the shape of one answer."""

    output: OutputFormat = AnyText()
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    is_parallel: bool = True  # more than one call in an answer
    max_calls: int | None = None  # at least 1; None: as many as fit
    can_reason: bool = True  # False: the client switched it off
    is_reasoning_open: bool = False  # the prompt has opened the block already
    is_begun: bool = False  # the prompt ends within the text of the answer
    min_reasoning_tokens: int = 0
    max_reasoning_tokens: int | None = None
    is_raw: bool = False  # the answer goes on with a text of the client's own: nothing of a chat is in it
    any_order: bool = False  # of the properties in a format, where the alternatives stay few
    closes_objects: bool = False  # one that lists its properties, and does not say otherwise, has no others


class SchemaProblem(NamedTuple):
    """What of a schema cannot be enforced: a pointer to it, the keyword ("" where it is no single one), and why."""

    path: str
    keyword: str
    reason: str


class InvalidDemand(Exception):
    """The demand cannot be met: a bad grammar, a schema that cannot be enforced, an unknown tool.

    `subject` says what is wrong, for the edge to name the parameter; for "tool", `index` is the tool's. `place` is
    where in a schema, where that is known.
    """

    def __init__(
        self,
        message: str,
        subject: Literal["output", "tool", "tool_choice", "reasoning"],
        index: int = 0,
        place: SchemaProblem | None = None,
    ) -> None:
        # It may quote names and patterns of the client's, which are as long as a body.
        self.message = message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…"
        super().__init__(self.message)
        self.subject = subject
        self.index = index
        self.place = place
