"""The responses that a socket remembers and nobody stored: the last of each lane, as long as the socket is open."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proxy_inference_engine.errors import PieError
from proxy_inference_engine.server.apis.responses.history import WireItem
from proxy_inference_engine.server.http.body import BodyBudget


class TurnMemory(Mapping[str, Sequence[WireItem]]):
    """Turns by the id of their response. What the budget has no room for is forgotten: its client sends all again."""

    def __init__(self, budget: BodyBudget, holder: str) -> None:
        self._budget = budget
        self._holder = holder
        self._items: dict[str, Sequence[WireItem]] = {}
        self._sizes: dict[str, int] = {}
        self._lanes: dict[str, str] = {}  # the id of the last response of each

    def keep(self, lane: str, id_: str, items: Sequence[WireItem]) -> None:
        """Remember a response in place of the one before it on this lane."""
        self.forget(self._lanes.pop(lane, ""))
        size = sum(map(_size, items))
        try:
            self._budget.take(self._holder, size)
        except PieError:
            return
        self._items[id_], self._sizes[id_], self._lanes[lane] = items, size, id_

    def forget(self, id_: str) -> None:
        if self._items.pop(id_, None) is not None:
            self._budget.give(self._holder, self._sizes.pop(id_))

    def close(self) -> None:
        for id_ in list(self._items):
            self.forget(id_)

    def __getitem__(self, id_: str) -> Sequence[WireItem]:
        return self._items[id_]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


def _size(value: Any) -> int:
    """The least that an item takes: its texts, and something for every value."""
    match value:
        case str():
            return len(value) + 1
        case dict():
            return sum(map(_size, value.values())) + 1
        case list():
            return sum(map(_size, value)) + 1
        case _:
            return 1
