"""The states an answer goes through, and the rules that put them together.

Reasoning?  then one of
    FreeformText            StructuredOutput            ToolCalls
    FreeformText, or text followed by calls             ToolCalls or StructuredOutput
"""

from dataclasses import dataclass

from proxy_inference_engine.interaction import TextGrammar, Tool
from proxy_inference_engine.state_machine.demand import AnyText, Choice, Demand, InvalidDemand, JsonObject, JsonSchema


@dataclass(frozen=True, slots=True)
class FreeformText:
    """Anything that does not open a call."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Free thought before the answer. Open: the prompt began it; otherwise the model may."""

    is_open: bool


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """One call, and more up to `max_calls` (None: any number). `indexes` are the tools' places in the client's list."""

    tools: tuple[Tool, ...]
    indexes: tuple[int, ...]
    max_calls: int | None


@dataclass(frozen=True, slots=True)
class StructuredOutput:
    format: JsonObject | JsonSchema | TextGrammar | Choice


@dataclass(frozen=True, slots=True)
class Root:
    """The machine of one request: reasoning first, then what the answer may be, never both text and a structure."""

    reasoning: Reasoning | None = None
    text: FreeformText | None = None
    structured: StructuredOutput | None = None
    calls: ToolCalls | None = None

    @property
    def is_free(self) -> bool:
        """Whether nothing binds the answer."""
        return self.structured is None and self.calls is None


def build_root(demand: Demand, *, can_reason: bool, can_repeat: bool) -> Root:
    """`can_reason` and `can_repeat` are the family's. Raises InvalidDemand.

    demand                          answer
    a format alone                  the structured output
    tools, auto                     text, or calls, or text and then calls
    tools, auto, and a format       calls, or the structured output
    tools, required or named        calls
    tools, none                     the format, or text
    """
    # A block that the prompt has opened is there, whoever switched reasoning off.
    is_there = can_reason and (demand.can_reason or demand.is_reasoning_open)
    reasoning = Reasoning(demand.is_reasoning_open) if is_there else None
    calls = _calls(demand, can_repeat)
    if calls is not None and demand.tool_choice.mode == "required":
        return Root(reasoning, calls=calls)
    if isinstance(demand.output, AnyText):
        return Root(reasoning, text=FreeformText(), calls=calls)
    return Root(reasoning, structured=StructuredOutput(demand.output), calls=calls)


def _calls(demand: Demand, can_repeat: bool) -> ToolCalls | None:
    choice = demand.tool_choice
    if not demand.tools:
        if choice.mode == "required" or choice.names is not None:
            raise InvalidDemand("a tool is to be called, but there are no tools", "tool_choice")
        return None
    unknown = sorted((choice.names or frozenset()) - {tool.name for tool in demand.tools})
    if unknown:
        raise InvalidDemand(f"there is no tool named {unknown[0][:64]!r}", "tool_choice")
    if choice.mode == "none":
        return None
    allowed = [
        (index, tool) for index, tool in enumerate(demand.tools) if choice.names is None or tool.name in choice.names
    ]
    if not allowed:
        raise InvalidDemand("no tool may be called", "tool_choice")
    tools = tuple(tool for _, tool in allowed)
    max_calls = demand.max_calls if demand.is_parallel and can_repeat else 1
    return ToolCalls(tools, tuple(index for index, _ in allowed), max_calls)
