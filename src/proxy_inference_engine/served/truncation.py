"""Conversations that are too long for the context: whole turns are left out, the oldest first."""

from collections.abc import Callable, Sequence

from proxy_inference_engine.interaction import Interaction, Role
from proxy_inference_engine.prompt.images import image_parts
from proxy_inference_engine.served.ask import Turns

_INSTRUCTING = frozenset({Role.SYSTEM, Role.DEVELOPER})
_SHARE_LEFT = 8  # of the context: room for the answer where the client names no limit


def shortened(turns: Turns, count: Callable[[Turns], int], max_tokens: int | None, context_tokens: int) -> Turns:
    """The turns that are left when as few of the oldest go as leave room for an answer; the last one always stays.

    `count` has the tokens of a conversation.
    """
    room = min(max_tokens or context_tokens // _SHARE_LEFT, context_tokens // 2)
    least, most = 1, len(whole_turns(turns)) - 1
    while least < most:
        middle = (least + most) // 2
        if count(without_oldest(turns, middle)) + room <= context_tokens:
            most = middle
        else:
            least = middle + 1
    return without_oldest(turns, max(most, 0))


def with_fewer_images(turns: Turns, most: int) -> Turns:
    """The turns that are left when the oldest go until there are `most` images or fewer; the last one always stays."""
    groups = whole_turns(turns)
    num_dropped, num_images = 0, len(image_parts(turns))
    while num_images > most and num_dropped < len(groups) - 1:
        num_images -= len(image_parts(groups[num_dropped]))
        num_dropped += 1
    return without_oldest(turns, num_dropped) if num_dropped else turns


def whole_turns(turns: Turns) -> list[list[Interaction]]:
    """The conversation without its instructions, cut where the user speaks and no call waits for its result."""
    answered = {turn.metadata.get("tool_call_id") for turn in turns if turn.role is Role.TOOL}
    waiting: set[str] = set()
    groups: list[list[Interaction]] = []
    for turn in turns:
        if turn.role in _INSTRUCTING:
            continue
        if not groups or (turn.role is Role.USER and not waiting):
            groups.append([])
        groups[-1].append(turn)
        waiting |= {call.id for call in turn.metadata.get("tool_calls", ())} & answered
        waiting.discard(turn.metadata.get("tool_call_id", ""))
    return groups


def without_oldest(turns: Sequence[Interaction], num_groups: int) -> list[Interaction]:
    """All but the first `num_groups` whole turns; instructions stay."""
    dropped = {turn.id for group in whole_turns(turns)[:num_groups] for turn in group}
    return [turn for turn in turns if turn.id not in dropped]
