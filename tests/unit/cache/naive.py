"""The prefix cache as a dict of tuples: every question is answered by looking at all of them."""

from dataclasses import dataclass

Ids = tuple[int, ...]
Key = tuple[str, Ids]  # tenant, tokens from the root to the end of a node


def shared(a: Ids, b: Ids) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@dataclass(slots=True)
class Entry:
    used: int
    has_kv: bool


class NaiveCache:
    """Sizes are in tokens. Entries are where an insertion ended or two of them parted."""

    def __init__(self, max_tokens: int, *, can_splice: bool) -> None:
        self.max_tokens = max_tokens
        self.can_splice = can_splice
        self.entries: dict[Key, Entry] = {}
        self._now = 0

    @property
    def num_tokens(self) -> int:
        return sum(self._size(key) for key in self.entries)

    def match(self, tenant: str, ids: Ids) -> int:
        if self.can_splice:
            depth = self._depth(tenant, ids)
            ends = [path for path in self._paths(tenant) if path[:depth] == ids[:depth]]
        else:
            ends = [path for path in self._paths(tenant) if self._holds(tenant, path) and ids[: len(path)] == path]
            depth = max(map(len, ends), default=0)
            ends = [path for path in ends if len(path) == depth]
        if depth:
            self._touch(tenant, min(ends, key=len))
        return depth

    def insert(self, tenant: str, ids: Ids) -> int | None:
        """Where the export had to start, or None if there was none."""
        depth = self._depth(tenant, ids)
        fork = ids[:depth]
        if depth and (tenant, fork) not in self.entries:
            self.entries[tenant, fork] = Entry(0, self.can_splice)
            self._touch(tenant, fork)
        if depth == len(ids) and self._holds(tenant, ids):
            self._touch(tenant, ids)
            return None
        start = depth if self.can_splice else 0
        is_stored = self._make_room(len(ids) - start, tenant, {(tenant, ids[:end]) for end in range(depth + 1)})
        if is_stored:
            self.entries[tenant, ids] = Entry(0, True)
            self._touch(tenant, ids)
        self._prune()
        return start if is_stored else None

    def evict_one(self, locked: set[Key] | None = None, tenant: str | None = None, num_tokens: int = 0) -> bool:
        """`num_tokens` are what a tenant wants to have besides."""
        wanted = {name: self.held(name) for name, _ in self.entries if self.held(name)}
        if tenant is not None:
            wanted[tenant] = wanted.get(tenant, 0) + num_tokens
        share = self.max_tokens / max(1, min(len(wanted), 8))
        leaves = [key for key in self.entries if self._is_leaf(key) and key not in (locked or ())]
        # Whoever holds more than a share, the largest first; then all others, unless it is for one who has enough.
        turns = [{name} for _, name in sorted(((much, name) for name, much in wanted.items()), reverse=True)]
        turns = [names for names in turns if any(wanted[name] > share for name in names)]
        if {tenant} not in turns:
            turns.append({name for name, _ in self.entries})
        for names in turns:
            if own := [key for key in leaves if key[0] in names]:
                del self.entries[min(own, key=lambda key: self.entries[key].used)]
                self._prune(locked)
                return True
        return False

    def held(self, tenant: str) -> int:
        return sum(self._size(key) for key in self.entries if key[0] == tenant)

    def _make_room(self, num_tokens: int, tenant: str, locked: set[Key]) -> bool:
        if num_tokens > self.max_tokens:
            return False
        while self.num_tokens + num_tokens > self.max_tokens:
            if not self.evict_one(locked, tenant, num_tokens):
                return False
        return True

    def _prune(self, locked: set[Key] | None = None) -> None:
        while empty := [key for key in self.entries if not self.entries[key].has_kv and self._is_leaf(key)]:
            empty = [key for key in empty if key not in (locked or ())]
            if not empty:
                return
            for key in empty:
                del self.entries[key]

    def _paths(self, tenant: str) -> list[Ids]:
        return [path for owner, path in self.entries if owner == tenant]

    def _holds(self, tenant: str, path: Ids) -> bool:
        return (tenant, path) in self.entries and self.entries[tenant, path].has_kv

    def _depth(self, tenant: str, ids: Ids) -> int:
        return max((shared(path, ids) for path in self._paths(tenant)), default=0)

    def _is_leaf(self, key: Key) -> bool:
        tenant, ids = key
        return not any(path[: len(ids)] == ids and path != ids for path in self._paths(tenant))

    def _size(self, key: Key) -> int:
        tenant, ids = key
        if not self.can_splice:
            return len(ids) * self.entries[key].has_kv
        above = [len(path) for path in self._paths(tenant) if path != ids and ids[: len(path)] == path]
        return len(ids) - max(above, default=0)

    def _touch(self, tenant: str, ids: Ids) -> None:
        for end in range(len(ids), 0, -1):
            if (tenant, ids[:end]) in self.entries:
                self._now += 1
                self.entries[tenant, ids[:end]].used = self._now
