"""What lies on disk: a prefix tree like that in memory, whose nodes hold places in files, under a budget of bytes.

A file may begin in the middle of a text: what is before it is then in another file. The tree keeps such chains
together, for a parent is at least as recent as its children, and a leaf goes first. Touches no file: it names those to
remove.
"""

from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from proxy_inference_engine.cache.disk.file import Header
from proxy_inference_engine.cache.prefix import PrefixCache
from proxy_inference_engine.runners.base import TokenIds

_NO_LIMIT = 1 << 62  # the tree's own budget; the files' is kept here


@dataclass(slots=True, eq=False)
class DiskFile:
    """`num_extents` counts the tree's nodes that need the file."""

    name: str
    header: Header
    num_bytes: int
    num_extents: int = 0


@dataclass(slots=True, eq=False)
class Extent:
    """A run of tokens in a file. Implements `base.Segment`, so that the tree can hold it."""

    file: DiskFile
    num_tokens: int
    freed: "list[DiskFile]"
    num_bytes: int = field(default=0, init=False)  # files count, not their parts

    def __post_init__(self) -> None:
        self.file.num_extents += 1

    def split(self, at: int) -> tuple["Extent", "Extent"]:
        parts = Extent(self.file, at, self.freed), Extent(self.file, self.num_tokens - at, self.freed)
        self.free()
        return parts

    def free(self) -> None:
        self.file.num_extents -= 1
        if self.file.num_extents == 0:
            self.freed.append(self.file)


class Take(NamedTuple):
    """What of a file a text needs: its pieces `first` to `stop`, the last of them up to token `end`."""

    file: DiskFile
    first: int
    stop: int
    end: int

    @property
    def num_bytes(self) -> int:
        return sum(piece.num_bytes for piece in self.file.header.pieces[self.first : self.stop])


class DiskIndex:
    """Invariant: bytes used = sum over files, and every file is needed by a node. Engine thread only."""

    def __init__(self, max_bytes: int, *, can_splice: bool) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._can_splice = can_splice
        self._tree = PrefixCache(_NO_LIMIT, can_splice=can_splice)
        self._freed: list[DiskFile] = []
        self._others: dict[str, int] = {}  # name → bytes of files that another model left, the oldest last
        self._removed: list[str] = []

    def num_known(self, tenant: str, ids: TokenIds) -> int:
        """How many of the first tokens could be read; where only whole texts can, all or none."""
        match = self._tree.match(tenant, ids)
        return match.num_tokens if self._can_splice or match.num_tokens == len(ids) else 0

    def add(self, file: DiskFile) -> bool:
        """Make room and take the file in; False when it can't be, adds nothing, or what is before it is not there."""
        header = file.header
        if not self._make_room(file.num_bytes):
            return False
        if self._can_splice and self._tree.match(header.tenant, header.ids).num_tokens < header.start:
            return False
        num_ids = len(header.ids)
        self._tree.insert(header.tenant, header.ids, lambda start: Extent(file, num_ids - start, self._freed), 0)
        if file.num_extents:
            self.num_bytes += file.num_bytes
        return file.num_extents > 0

    def add_other(self, name: str, num_bytes: int) -> None:
        """Count a file of another model, which only takes room. To be called from the most to the least recent one."""
        self._others[name] = num_bytes
        self.num_bytes += num_bytes

    def find(self, tenant: str, ids: TokenIds, start: int) -> list[Take]:
        """What to read for the tokens of a text from `start` on, in their order."""
        match = self._tree.match(tenant, ids)
        takes: list[Take] = []
        end, depth = match.num_tokens, sum(extent.num_tokens for extent in match.segments)
        for extent in reversed(match.segments):
            assert isinstance(extent, Extent)
            depth -= extent.num_tokens
            if depth < end and end > start:  # else a file that begins before it was taken already, or all is there
                takes.append(_take(extent.file, start, end))
                end = extent.file.header.start
        return takes[::-1]

    def drop(self, file: DiskFile) -> None:
        """The file is no good: forget it, and what builds on it."""
        tenant, ids = file.header.tenant, file.header.ids
        depth = 0 if self._can_splice else len(ids) - 1
        for extent in self._tree.match(tenant, ids).segments:
            assert isinstance(extent, Extent)
            if extent.file is file:
                self._tree.forget(tenant, ids, depth)
                return
            depth += extent.num_tokens

    def removed(self) -> list[str]:
        """The names of files that nobody needs any more; each is named once."""
        self._settle()
        names, self._removed = self._removed, []
        return names

    def _make_room(self, num_bytes: int) -> bool:
        if num_bytes > self.max_bytes:
            return False
        self._settle()
        while self.num_bytes + num_bytes > self.max_bytes:
            if self._others:
                name, other_bytes = self._others.popitem()
                self.num_bytes -= other_bytes
                self._removed.append(name)
            elif not self._tree.evict_one():
                return False
            self._settle()
        return True

    def _settle(self) -> None:
        for file in self._freed:
            self.num_bytes -= file.num_bytes
            self._removed.append(file.name)
        self._freed.clear()

    def check(self) -> None:
        """Raise if the books do not agree with the tree."""
        self._settle()
        self._tree.check()
        files = {extent.file for extent in self._tree.segments() if isinstance(extent, Extent)}
        assert self.num_bytes == sum(file.num_bytes for file in files) + sum(self._others.values()), "disk bytes wrong"
        assert self.num_bytes <= self.max_bytes, "over budget on disk"


def _take(file: DiskFile, start: int, end: int) -> Take:
    """The pieces that hold tokens from `start` to `end`."""
    ends = file.header.ends
    first = sum(1 for _ in takewhile(lambda piece_end: piece_end <= start, ends))
    stop = 1 + sum(1 for _ in takewhile(lambda piece_end: piece_end < end, ends))
    return Take(file, first, stop, end)
