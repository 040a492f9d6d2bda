"""What a model family's file says, and the rules every family shares. Knows nothing of tokens or of HTTP."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby

from proxy_inference_engine.formats.convention import Convention
from proxy_inference_engine.formats.hermes import HERMES_CALLS
from proxy_inference_engine.formats.history import one_call_each, with_ids, with_results_in_order
from proxy_inference_engine.formats.syntax import CallSyntax, Channels, Thinking
from proxy_inference_engine.interaction import Content, ContentType, Interaction, Role, Tool

_INSTRUCTING = frozenset({Role.SYSTEM, Role.DEVELOPER})
_MERGING = frozenset({Role.USER, Role.ASSISTANT})


class ToolPlace(StrEnum):
    """Where a template looks for tools."""

    TOOLS = "tools"  # a variable
    FUNCTIONS = "functions"  # a text, beside one with the day in `datetime`
    SYSTEM = "system"  # a text in the field `tools` of the system's message


@dataclass(frozen=True, slots=True)
class Format:
    """One model family as data."""

    name: str
    template: str  # for a model file that brings no template of its own
    markers: tuple[str, ...] = ()  # what the family's chat templates contain, all of it
    architectures: tuple[str, ...] = ()  # where there is no template to tell, and the model's name does not
    names: tuple[str, ...] = ()  # what models of the family are called, in small letters and digits
    stop_strings: tuple[str, ...] = ()  # where the model runs on past its turn
    thinking: Thinking | None = None  # None: the family does not reason, or in `channels`
    calls: CallSyntax | None = None  # None: with `channels`, where those say it
    channels: Channels | None = None
    lead: str = ""  # stands before an answer that is text, and says nothing
    trails: tuple[str, ...] = ()  # the same behind it
    answer_start: str = ""  # what its template ends a prompt with though every answer begins with it
    tokens: frozenset[str] = frozenset()  # markers that are single tokens in the family's own vocabulary
    result_tags: tuple[str, str] = ("<tool_response>\n", "\n</tool_response>")  # where its template reads no tools

    must_alternate: bool = False  # the family refuses two turns of one role in a row
    has_system_role: bool = True  # False: instructions go to the front of the first user turn
    has_parallel_calls: bool = True  # False: its templates read one call of a turn
    num_id_chars: int | None = None  # its templates refuse an id that is not that long
    has_text_arguments: bool = False  # its templates read arguments as JSON text
    has_null_content: bool = False  # its templates want no content beside calls, not an empty one
    reasoning_field: str = "reasoning_content"  # what its templates call it
    is_reasoning_alone: bool = False  # its templates refuse a text beside reasoning and calls
    id_form: str = ""  # its templates print ids where names belong: made of a call's {name} and {index}
    needs_system_for_tools: bool = False  # its template lists tools only behind instructions
    is_taught_elsewhere: bool = False  # its models write calls so though no template of theirs does
    has_absent_tools: bool = False  # its template fails on no tools unless they are not even named
    tool_place: ToolPlace = ToolPlace.TOOLS
    reads_tools: bool = True  # False: whatever its template does with tools, they are put into words
    reads_calls: bool = True  # False: the same for calls and results of history
    reads_results: bool = False  # where it reads no calls: its template has a role for results all the same

    def prepare(
        self,
        interactions: Sequence[Interaction],
        tools: Sequence[Tool] = (),
        template_reads_tools: bool = True,
        template_reads_calls: bool | None = None,
    ) -> list[Interaction]:
        """The turns as the family's templates take them; what a template does not read is written out as text.

        `template_reads_calls` is about the calls and results of history; None: as it reads tools.
        """
        reads_calls = template_reads_tools if template_reads_calls is None else template_reads_calls
        instructions = [turn for turn in interactions if turn.role in _INSTRUCTING]
        turns = [turn for turn in interactions if turn.role not in _INSTRUCTING]
        if any(turn.role is Role.TOOL or turn.calls for turn in turns):
            turns = self._fit_calls(turns, tools, reads_calls)
        if tools and not template_reads_tools:
            instructions.append(Interaction.of(Role.SYSTEM, self._convention.describe(tools)))
        if not self.has_system_role:
            turns, instructions = _led_by(instructions, turns), []
        elif tools and template_reads_tools and self.needs_system_for_tools and not instructions:
            instructions = [Interaction.of(Role.SYSTEM, "")]
        if self.must_alternate:
            turns = _alternating(turns)
            if turns and turns[0].role is Role.ASSISTANT:
                turns.insert(0, Interaction.of(Role.USER, ""))
        return [_as_system(instructions), *turns] if instructions else turns

    def leads(self, can_reason: bool) -> tuple[str, ...]:
        """What may stand before an answer and says nothing, each for itself."""
        gap = self.thinking.gap.strip() if self.thinking is not None and can_reason else ""
        return tuple(filter(None, (gap, self.lead.lstrip())))

    @property
    def _convention(self) -> Convention:
        """How tools are put into words for a template that reads none."""
        calls = _in_channels(self.channels) if self.channels else HERMES_CALLS
        return Convention(self.calls or calls, self.result_tags)

    def _fit_calls(self, turns: Sequence[Interaction], tools: Sequence[Tool], reads_calls: bool) -> list[Interaction]:
        """Calls and results of history: in order, and in the shape that the family's templates read."""
        turns = with_results_in_order(turns)
        if not reads_calls:
            return self._convention.write_history(turns, tools, keeps_results=self.reads_results)
        if self.num_id_chars is not None:
            turns = with_ids(turns, f"{{index:0{self.num_id_chars}}}", self.num_id_chars)
        elif self.id_form:
            turns = with_ids(turns, self.id_form)
        return turns if self.has_parallel_calls else one_call_each(turns)


@dataclass(frozen=True, slots=True)
class Labels:
    """What a parser has to expect of one request's output: made by the state machine from the family's format.

    Nothing set: all output is content.
    """

    thinking: Thinking | None = None
    starts_in_reasoning: bool = False  # the prompt has opened the block already
    calls: CallSyntax | None = None  # None: whatever looks like a call is text
    is_call_at_start: bool = False  # a call opens at the start of the answer, or in the reasoning, or not at all
    channels: Channels | None = None
    leads: tuple[str, ...] = ()  # may stand before the answer, and say nothing
    trails: tuple[str, ...] = ()  # the same behind texts and calls
    start: str = ""  # of the answer, which the prompt has written already
    tools: Mapping[str, Tool] = field(default_factory=dict)
    tokens: Mapping[int, str] = field(default_factory=dict)  # id → text of the family's markers that are tokens here
    is_bound: bool = True  # a grammar held the calls to their syntax; if not, they are read tolerantly

    @property
    def is_plain(self) -> bool:
        return self.thinking is None and self.calls is None and self.channels is None and not self.leads


def _in_channels(channels: Channels) -> CallSyntax:
    """How a call is written where an answer is a row of messages."""
    return CallSyntax(
        opening=channels.channel,
        before_name=channels.channel + channels.call,
        between=channels.call_suffix + channels.message,
        after="",
        separator=channels.end + channels.restart,
        can_repeat=False,
    )


def _as_system(instructions: Sequence[Interaction]) -> Interaction:
    """All instructions as one turn of the system."""
    if len(instructions) == 1:
        only = instructions[0]
        return only if only.role is Role.SYSTEM else replace(only, role=Role.SYSTEM)
    text = "\n\n".join(turn.text for turn in instructions if turn.text.strip())
    return Interaction(Role.SYSTEM, (Content.of(text),), created_at=instructions[0].created_at)


def _led_by(instructions: Sequence[Interaction], turns: list[Interaction]) -> list[Interaction]:
    """The instructions in front of what the user says first."""
    if not instructions:
        return turns
    if not turns or turns[0].role is not Role.USER:
        return [replace(_as_system(instructions), role=Role.USER), *turns]
    first = turns[0]
    return [replace(first, content=_joined_content([*instructions, first])), *turns[1:]]


def _alternating(turns: Iterable[Interaction]) -> list[Interaction]:
    """Turns of one role that follow each other as one turn."""
    merged: list[Interaction] = []
    # A turn with calls stays alone: families let it stand beside others, and its calls belong to its own text.
    for (role, has_calls), group in groupby(turns, key=lambda turn: (turn.role, bool(turn.calls))):
        run = list(group)
        if len(run) == 1 or has_calls or role not in _MERGING:
            merged.extend(run)
        else:
            # The last turn's metadata wins: names of earlier ones would belong to other text.
            merged.append(replace(run[-1], content=_joined_content(run)))
    return merged


def _joined_content(turns: Sequence[Interaction]) -> tuple[Content, ...]:
    """Texts one below the other, with a line between turns; everything else stays where it is."""
    joined: list[Content] = []
    for turn in turns:
        parts = turn.content
        if all(part.type is ContentType.TEXT for part in parts):
            parts = (Content.of(turn.text),) if turn.text.strip() else ()
        if joined and parts and joined[-1].type is parts[0].type is ContentType.TEXT:
            parts = (Content.of(f"{joined.pop().text}\n\n{parts[0].text}"), *parts[1:])
        joined += parts
    return tuple(joined) or (Content.of(""),)
