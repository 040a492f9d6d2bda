"""Calls in the wire format of chat: as deltas while they come, or whole. Ids are made here, one a call."""

import hashlib
from collections.abc import Callable, Sequence, Set
from typing import Any

from proxy_inference_engine.output.answer import AnsweredCall
from proxy_inference_engine.output.events import CallDelta, CallEnded, CallStarted
from proxy_inference_engine.server.ids import new_id

CallIds = Callable[[int], str]  # the id of a choice's call, from its number


def fresh_ids(_index: int) -> str:
    return new_id("call_")


def derived_ids(answer_id: str, choice: int) -> CallIds:
    """Made from the answer's own random id: the same wherever the answer is written once more."""
    return lambda index: "call_" + hashlib.sha256(f"{answer_id}/{choice}/{index}".encode()).hexdigest()[:32]


class CallDeltas:
    """The deltas of one choice. Id, type and name come once: clients join what is repeated."""

    def __init__(self, custom_names: Set[str], ids: CallIds = fresh_ids) -> None:
        self._custom_names = custom_names
        self._ids = ids
        self._are_custom: list[bool] = []
        self._num_complete = 0

    @property
    def are_complete(self) -> bool:
        """There were calls, and none was cut off."""
        return 0 < len(self._are_custom) == self._num_complete

    def feed(self, event: CallStarted | CallDelta | CallEnded) -> dict[str, Any] | None:
        """The entry of `delta.tool_calls`; None when there is nothing to say."""
        match event:
            case CallStarted(index, name):
                self._are_custom.append(name in self._custom_names)
                return {"index": index, **_call(self._ids(index), name, "", self._are_custom[index])}
            case CallDelta(index, arguments):
                return {"index": index, **_arguments(arguments, self._are_custom[index])}
            case CallEnded():
                self._num_complete += 1
                return None


def whole_calls(
    calls: Sequence[AnsweredCall], custom_names: Set[str], ids: CallIds = fresh_ids
) -> list[dict[str, Any]]:
    return [_call(ids(index), call.name, call.arguments, call.name in custom_names) for index, call in enumerate(calls)]


def _call(id_: str, name: str, arguments: str, is_custom: bool) -> dict[str, Any]:
    kind = "custom" if is_custom else "function"
    return {"id": id_, "type": kind, kind: {"name": name, **_arguments(arguments, is_custom)[kind]}}


def _arguments(arguments: str, is_custom: bool) -> dict[str, dict[str, str]]:
    return {"custom": {"input": arguments}} if is_custom else {"function": {"arguments": arguments}}
