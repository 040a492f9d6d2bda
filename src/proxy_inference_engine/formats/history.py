"""Calls and results of a conversation: which belong together, and in what shape families take them."""

import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count, groupby
from typing import Any

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction import Interaction, Role, ToolCall


def with_results_in_order(turns: Sequence[Interaction]) -> list[Interaction]:
    """Results that follow each other stand in the order of their calls and name their tool."""
    calls: dict[str, tuple[int, ToolCall]] = {}  # by id, numbered as they were made
    numbers = count()
    ordered: list[Interaction] = []
    for is_result, group in groupby(turns, key=lambda turn: turn.role is Role.TOOL):
        run = list(group)
        if is_result:
            run = [_named(result, calls) for result in run]
            run.sort(key=lambda result: calls[_id_of(result)][0] if _id_of(result) in calls else sys.maxsize)
        else:
            calls |= {call.id: (next(numbers), call) for turn in run for call in turn.calls}
        ordered += run
    return ordered


def with_ids(turns: Sequence[Interaction], form: str, num_chars: int | None = None) -> list[Interaction]:
    """Ids are made of a call's {name} and {index}, so that a conversation that grows keeps its beginning.

    One of `num_chars` letters and digits stays.
    """

    def id_for(call: ToolCall, index: int) -> str:
        fits = len(call.id) == num_chars and call.id.isascii() and call.id.isalnum()
        return call.id if fits else form.format(name=call.name, index=index)

    made: dict[str, str] = {}
    numbers = count()
    changed: list[Interaction] = []
    for turn in turns:
        calls = turn.calls
        made |= {call.id: id_for(call, next(numbers)) for call in calls}
        if calls:
            turn = _with(turn, tool_calls=tuple(replace(call, id=made[call.id]) for call in calls))
        elif _id_of(turn) in made:
            turn = _with(turn, tool_call_id=made[_id_of(turn)])
        changed.append(turn)
    return changed


def one_call_each(turns: Sequence[Interaction]) -> list[Interaction]:
    """A turn with several calls becomes several turns, each followed by its result."""
    split: list[Interaction] = []
    waiting: deque[ToolCall] = deque()
    ids: set[str] = set()  # of those waiting
    for turn in turns:
        if turn.role is not Role.TOOL:
            split += map(_calling, waiting)
            calls = turn.calls
            waiting, ids = deque(calls[1:]), {call.id for call in calls[1:]}
            split.append(_with(turn, tool_calls=calls[:1]) if calls else turn)
            continue
        # Results stand in the order of their calls, so a call before this one has none.
        while _id_of(turn) in ids:
            call = waiting.popleft()
            ids.discard(call.id)
            split.append(_calling(call))
        split.append(turn)
    return [*split, *map(_calling, waiting)]


def _calling(call: ToolCall) -> Interaction:
    return Interaction(Role.ASSISTANT, (), {"tool_calls": (call,)})


def _named(result: Interaction, calls: Mapping[str, tuple[int, ToolCall]]) -> Interaction:
    id_ = _id_of(result)
    if not id_:
        return result
    if id_ not in calls:
        raise InvalidRequest(f"no call before this result has the id {id_[:64]!r}", param="messages")
    return _with(result, name=calls[id_][1].name)


def _id_of(result: Interaction) -> str:
    return str(result.metadata.get("tool_call_id") or "")


def _with(turn: Interaction, **fields: Any) -> Interaction:
    return replace(turn, metadata={**turn.metadata, **fields})
