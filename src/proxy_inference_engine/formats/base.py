"""What a model family's file says, and the rules every family shares. Knows nothing of tokens or of HTTP."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from proxy_inference_engine.interaction import Content, Interaction, Role

_INSTRUCTING = frozenset({Role.SYSTEM, Role.DEVELOPER})
_MERGING = frozenset({Role.USER, Role.ASSISTANT})


@dataclass(frozen=True, slots=True)
class Format:
    """One model family as data."""

    name: str
    template: str  # for a model file that brings no template of its own
    markers: tuple[str, ...] = ()  # texts in a chat template that give the family away
    stop_strings: tuple[str, ...] = ()  # where the model runs on past its turn
    must_alternate: bool = False  # the family refuses two turns of one role in a row

    def prepare(self, interactions: Sequence[Interaction]) -> list[Interaction]:
        """Make one leading system turn of all instructions and, where the family demands it, let roles alternate."""
        instructions = [turn for turn in interactions if turn.role in _INSTRUCTING]
        turns = [turn for turn in interactions if turn.role not in _INSTRUCTING]
        if self.must_alternate:
            turns = _alternating(turns)
        return [_as_system(instructions), *turns] if instructions else turns


def _as_system(instructions: Sequence[Interaction]) -> Interaction:
    if len(instructions) == 1:
        only = instructions[0]
        return only if only.role is Role.SYSTEM else replace(only, role=Role.SYSTEM)
    return Interaction(Role.SYSTEM, (Content.of(_joined(instructions)),), created_at=instructions[0].created_at)


def _alternating(turns: Iterable[Interaction]) -> list[Interaction]:
    merged: list[Interaction] = []
    for role, group in groupby(turns, key=lambda turn: turn.role):
        run = list(group)
        if len(run) == 1 or role not in _MERGING:
            merged.extend(run)
        else:
            # The last turn's metadata wins: calls and names of earlier ones would belong to other text.
            merged.append(replace(run[-1], content=(Content.of(_joined(run)),)))
    return merged


def _joined(turns: Iterable[Interaction]) -> str:
    return "\n\n".join(turn.text for turn in turns if turn.text.strip())
