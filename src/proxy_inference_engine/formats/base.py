"""What a model family's file says, and the rules every family shares. Knows nothing of tokens or of HTTP."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from proxy_inference_engine.formats.convention import Convention
from proxy_inference_engine.formats.hermes import HERMES_CALLS
from proxy_inference_engine.formats.history import calls_of, one_call_each, with_results_in_order, with_short_ids
from proxy_inference_engine.formats.syntax import CallSyntax, Channels, Thinking
from proxy_inference_engine.interaction import Content, ContentType, Interaction, Role, Tool

_INSTRUCTING = frozenset({Role.SYSTEM, Role.DEVELOPER})
_MERGING = frozenset({Role.USER, Role.ASSISTANT})


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
    tokens: frozenset[str] = frozenset()  # markers that are single tokens in the family's own vocabulary
    result_tags: tuple[str, str] = ("<tool_response>\n", "\n</tool_response>")  # where its template reads no tools

    must_alternate: bool = False  # the family refuses two turns of one role in a row
    has_system_role: bool = True  # False: instructions go to the front of the first user turn
    has_parallel_calls: bool = True  # False: its templates read one call of a turn
    num_id_chars: int | None = None  # its templates refuse an id that is not that long
    has_text_arguments: bool = False  # its templates read arguments as JSON text
    reasoning_field: str = "reasoning_content"  # what its templates call it
    is_reasoning_alone: bool = False  # its templates refuse a text beside reasoning and calls

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
        turns = with_results_in_order([turn for turn in interactions if turn.role not in _INSTRUCTING])
        turns = self._fit_calls(turns) if reads_calls else self._convention.write_history(turns, tools)
        if tools and not template_reads_tools:
            instructions.append(Interaction.of(Role.SYSTEM, self._convention.describe(tools)))
        if not self.has_system_role:
            turns, instructions = _led_by(instructions, turns), []
        if self.must_alternate:
            turns = _alternating(turns)
        return [_as_system(instructions), *turns] if instructions else turns

    @property
    def _convention(self) -> Convention:
        calls = _in_channels(self.channels) if self.channels else HERMES_CALLS
        return Convention(self.calls or calls, self.result_tags)

    def _fit_calls(self, turns: list[Interaction]) -> list[Interaction]:
        if self.num_id_chars is not None:
            turns = with_short_ids(turns, self.num_id_chars)
        return turns if self.has_parallel_calls else one_call_each(turns)


def _in_channels(channels: Channels) -> CallSyntax:
    return CallSyntax(
        opening=channels.channel,
        before_name=channels.channel + channels.call,
        between=channels.call_suffix + channels.message,
        after="",
        separator=channels.end + channels.restart,
        can_repeat=False,
    )


def _as_system(instructions: Sequence[Interaction]) -> Interaction:
    if len(instructions) == 1:
        only = instructions[0]
        return only if only.role is Role.SYSTEM else replace(only, role=Role.SYSTEM)
    return Interaction(Role.SYSTEM, (Content.of(_joined(instructions)),), created_at=instructions[0].created_at)


def _led_by(instructions: Sequence[Interaction], turns: list[Interaction]) -> list[Interaction]:
    """The instructions in front of what the user says first."""
    if not instructions:
        return turns
    if not turns or turns[0].role is not Role.USER:
        return [replace(_as_system(instructions), role=Role.USER), *turns]
    first = turns[0]
    return [replace(first, content=_joined_content([*instructions, first])), *turns[1:]]


def _alternating(turns: Iterable[Interaction]) -> list[Interaction]:
    merged: list[Interaction] = []
    # A turn with calls stays alone: families let it stand beside others, and its calls belong to its own text.
    for (role, has_calls), group in groupby(turns, key=lambda turn: (turn.role, bool(calls_of(turn)))):
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
        parts = turn.content if any(part.type is not ContentType.TEXT for part in turn.content) else _text_of(turn)
        if joined and parts and joined[-1].type is parts[0].type is ContentType.TEXT:
            parts = (Content.of(f"{joined.pop().text}\n\n{parts[0].text}"), *parts[1:])
        joined += parts
    return tuple(joined) or (Content.of(""),)


def _text_of(turn: Interaction) -> tuple[Content, ...]:
    return (Content.of(turn.text),) if turn.text.strip() else ()


def _joined(turns: Iterable[Interaction]) -> str:
    return "\n\n".join(turn.text for turn in turns if turn.text.strip())
