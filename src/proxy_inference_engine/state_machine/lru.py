"""What was used lately, within bounds. Where there is no room, whoever has most gives way first."""

import threading
from collections import Counter, OrderedDict
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Entry(NamedTuple, Generic[T]):
    value: T
    size: int
    owner: str


class LruCache(Generic[T]):
    """Bounded by entries and by their sizes together. Safe to use from several threads.

    An entry belongs to whoever put it there, and is everybody's to get. Of the owner whose entries are the largest
    together, the one used longest ago goes: so nobody's flood takes away what others have.
    """

    def __init__(self, max_entries: int, max_size: int) -> None:
        self._max_entries = max_entries
        self._max_size = max_size
        self._entries: OrderedDict[str, _Entry[T]] = OrderedDict()
        self._sizes: Counter[str] = Counter()  # by owner
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> T | None:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found.value

    def put(self, key: str, value: T, size: int, owner: str = "") -> None:
        with self._lock:
            self._drop(key)
            self._entries[key] = _Entry(value, size, owner)
            self._sizes[owner] += size
            while len(self._entries) > self._max_entries or (
                self._sizes.total() > self._max_size and len(self._entries) > 1
            ):
                largest = max(self._sizes, key=lambda one: self._sizes[one])
                # The new one stays, also where it is all that its owner has.
                old = (name for name, entry in self._entries.items() if entry.owner == largest and name != key)
                self._drop(next(old, None) or next(iter(self._entries)))

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self._sizes[entry.owner] -= entry.size
        if self._sizes[entry.owner] <= 0:
            del self._sizes[entry.owner]
