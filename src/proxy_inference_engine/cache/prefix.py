"""The prefix cache: a radix tree over token ids, one root per tenant, whose nodes hold KV outside the running slots.

Where the runner can splice, a node holds the KV of its own tokens and any prefix of any path can be restored. Where
it cannot (sliding windows, recurrent state), a node holds a snapshot of everything from the root, and only a whole
snapshot is reused. When room is needed, those who hold more than their fair share give way (`shares.py`), the least
recently used first. Knows nothing of requests; all calls come from the engine thread.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from proxy_inference_engine.runners.base import Segment, TokenIds

_MAX_SHARES = 8  # with more tenants each may still have an eighth: a smaller share would hold no prompt


class Shares:
    """How many bytes each tenant holds of a cache of `max_bytes`; those that hold nothing are not known."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: dict[str, int] = {}

    def count(self, tenant: str, num_bytes: int) -> None:
        """A tenant holds so much more, or less."""
        held = self._held.get(tenant, 0) + num_bytes
        if held:
            self._held[tenant] = held
        else:
            self._held.pop(tenant, None)

    def held(self, tenant: str) -> int:
        return self._held.get(tenant, 0)

    def over(self, tenant: str | None = None, num_bytes: int = 0) -> list[str]:
        """The tenants that hold more than their share, the largest first, if `tenant` gets so many bytes more."""
        held = self._held
        if tenant is not None:
            held = {**held, tenant: held.get(tenant, 0) + num_bytes}
        num_shares = min(len(held), _MAX_SHARES)
        over = [(amount, name) for name, amount in held.items() if amount * num_shares > self._max_bytes]
        return [name for _, name in sorted(over, reverse=True)]


@dataclass(slots=True, eq=False)
class Node:
    """An edge and its end: `ids` lead from the parent to here."""

    ids: TokenIds
    segment: Segment | None
    parent: "Node | None"
    children: dict[int, "Node"] = field(default_factory=dict)
    num_locks: int = 0
    pinned_until: float = 0.0
    num_hits: int = 0  # sequences that began with it


class Match(NamedTuple):
    """The longest usable prefix: restore `segments` and cut them to `num_tokens`."""

    num_tokens: int
    segments: list[Segment]
    node: Node | None  # deepest node used; lock it while the segments are needed


class Path(NamedTuple):
    """A text in the tree and its KV: one segment a node where the runner can splice, else that of the last node."""

    tenant: str
    ids: TokenIds
    segments: list[Segment]


class PrefixCache:
    """Invariants: bytes used = sum over nodes; a parent is at least as recent as its children; a locked node's
    ancestors are locked."""

    def __init__(
        self, max_bytes: int, *, can_splice: bool = True, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clock = clock
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self.num_tokens = 0
        self._can_splice = can_splice
        self._roots: dict[str, Node] = {}
        self._recency: OrderedDict[Node, str] = OrderedDict()  # oldest first; value: the tenant
        self._lines: dict[str, OrderedDict[Node, None]] = {}  # the same, of each tenant
        self._shares = Shares(max_bytes)
        self.on_evict: Callable[[Path], None] | None = None  # hears of a text before its last segment is freed

    def match(self, tenant: str, ids: TokenIds, *, is_hit: bool = False) -> Match:
        """Longest cached prefix of `ids`; what it returns counts as used now, and as a hit where it is one."""
        segments: list[Segment] = []
        last: Node | None = None
        num_tokens = depth = 0
        for node, num_shared in self._walk(tenant, ids):
            depth += num_shared
            node.num_hits += is_hit
            if self._can_splice:
                assert node.segment is not None
                segments.append(node.segment)
                last, num_tokens = node, depth
            elif num_shared == len(node.ids) and node.segment is not None:
                segments, last, num_tokens = [node.segment], node, depth
        if last is not None:
            self._touch(tenant, last)
        return Match(num_tokens, segments, last)

    def num_known(self, tenant: str, ids: TokenIds) -> int:
        """How many of `ids` some text in the tree begins with, whether or not so many could be restored."""
        return sum(num_shared for _, num_shared in self._walk(tenant, ids))

    def insert(self, tenant: str, ids: TokenIds, export: Callable[[int], Segment], num_bytes: int) -> None:
        """Make `ids` known. `export(start)` is asked for the KV from `start` on, once there is room for it.

        `num_bytes` is the size of a segment of one token. Nothing is stored when room can't be made.
        """
        node, depth = self._descend(tenant, ids)
        start = depth if self._can_splice else 0
        if depth == len(ids) and (self._can_splice or node.segment is not None):
            self._touch(tenant, node)
            return
        self.lock(node)
        try:
            segment = export(start) if self.make_room((len(ids) - start) * num_bytes, tenant) else None
            if segment is not None and not self.make_room(segment.num_bytes, tenant):  # the estimate was too low
                segment.free()
                segment = None
            if segment is not None:
                self._attach(tenant, node, ids[depth:], segment)
        finally:
            self.unlock(node)
            self._prune(node)

    def lock(self, node: Node) -> None:
        """Keep the node and everything above it from eviction."""
        step: Node | None = node
        while step is not None:
            step.num_locks += 1
            step = step.parent

    def unlock(self, node: Node) -> None:
        step: Node | None = node
        while step is not None:
            assert step.num_locks > 0, "unlocked more often than locked"
            step.num_locks -= 1
            step = step.parent

    def pin(self, tenant: str, ids: TokenIds, seconds: float) -> None:
        """Keep what there is of a text for a while, as long as something else can give way."""
        until = self._clock() + seconds
        for node, _ in self._walk(tenant, ids):
            node.pinned_until = max(node.pinned_until, until)

    def make_room(self, num_bytes: int, tenant: str | None = None) -> bool:
        """Evict until so many bytes fit, which are a tenant's or nobody's; False if they can't."""
        if num_bytes > self.max_bytes:
            return False
        while self.num_bytes + num_bytes > self.max_bytes:
            if not self.evict_one(tenant, num_bytes):
                return False
        return True

    def evict_one(self, tenant: str | None = None, num_bytes: int = 0) -> bool:
        """Drop an unlocked leaf, so that a tenant may have so many bytes more.

        It is the least recently used one of whoever holds most beyond a fair share, or of all where nobody does. What
        others hold within their shares is not dropped for one that is beyond its own.
        """
        over = self._shares.over(tenant, num_bytes)
        for name in over:
            if self._evict_from(self._lines.get(name, ())):
                return True
        return tenant not in over and self._evict_from(self._recency)

    def _evict_from(self, nodes: Iterable[Node]) -> bool:
        """What is pinned goes last, and not before its time where anything else can go."""
        leaves = (node for node in nodes if node.num_locks == 0 and not node.children)
        now, found = self._clock(), None
        for node in leaves:
            found = found or node
            if node.pinned_until <= now:
                found = node
                break
        if found is not None:
            self._remove(found)
        return found is not None

    def clear(self) -> None:
        while self.evict_one():
            pass

    def reset(self) -> None:
        """Free every segment and know nothing, whatever a failure left of the tree."""
        for segment in list(self.segments()):
            with suppress(Exception):  # it may be freed already
                segment.free()
        self._roots, self._recency, self._lines = {}, OrderedDict(), {}
        self._shares = Shares(self.max_bytes)
        self.num_bytes = self.num_tokens = 0

    def forget(self, tenant: str, ids: TokenIds, start: int) -> None:
        """Drop the segment that has token `start` of `ids`, and all that are no good without it. None may be locked."""
        depth = 0
        for node, num_shared in self._walk(tenant, ids):
            depth += num_shared
            if depth > start:
                doomed = [node, *_descendants(node)] if self._can_splice else [node]
                for each in doomed:
                    self._drop(each)
                for each in [each for each in doomed if not each.children]:
                    self._prune(each)
                return

    def segments(self) -> Iterator[Segment]:
        return (node.segment for node in self._recency if node.segment is not None)

    def nodes(self) -> Iterator[tuple[Node, str]]:
        """All nodes with their tenants, the most recent first, so that none comes before those above it."""
        return reversed(self._recency.items())

    def texts(self) -> Iterator[Path]:
        """All there is, the most recent first: texts that no other one begins with, and every snapshot."""
        for node, tenant in self.nodes():
            if node.segment is not None and not (node.children and self._can_splice):
                yield self._path(node, tenant)

    def _walk(self, tenant: str, ids: TokenIds) -> Iterator[tuple[Node, int]]:
        """Nodes along `ids` from the root down, with the number of their tokens that agree (always > 0)."""
        node = self._roots.get(tenant)
        depth = 0
        while node is not None and depth < len(ids):
            child = node.children.get(int(ids[depth]))
            if child is None:
                return
            num_shared = common_prefix(child.ids, ids[depth:])
            is_whole = num_shared == len(child.ids)  # asked now: the caller may split the child meanwhile
            yield child, num_shared
            if not is_whole:
                return
            depth += num_shared
            node = child

    def _descend(self, tenant: str, ids: TokenIds) -> tuple[Node, int]:
        """The node that ends where `ids` leaves the tree, split off its edge if need be, and its depth."""
        node = self._roots.setdefault(tenant, Node(np.empty(0, np.int32), None, None))
        depth = 0
        for child, num_shared in self._walk(tenant, ids):
            depth += num_shared
            node = child if num_shared == len(child.ids) else self._split(child, num_shared, tenant)
        return node, depth

    def _split(self, node: Node, at: int, tenant: str) -> Node:
        """Put a new node in the middle of an edge; the old one keeps the lower part."""
        parent = node.parent
        assert parent is not None
        upper = Node(node.ids[:at].copy(), None, parent, {}, node.num_locks, node.pinned_until, node.num_hits)
        if self._can_splice:
            assert node.segment is not None
            num_bytes = node.segment.num_bytes
            upper.segment, node.segment = node.segment.split(at)
            self._count(tenant, upper.segment.num_bytes + node.segment.num_bytes - num_bytes)
        parent.children[int(upper.ids[0])] = upper
        node.ids = node.ids[at:].copy()
        node.parent = upper
        upper.children[int(node.ids[0])] = node
        self._line_up(tenant, upper)
        return upper

    def _attach(self, tenant: str, node: Node, ids: TokenIds, segment: Segment) -> None:
        if len(ids) == 0:  # a snapshot for a node that only marked a fork
            node.segment = segment
            self.num_tokens += segment.num_tokens
        else:
            child = Node(ids.copy(), segment, node)
            node.children[int(ids[0])] = child
            self.num_tokens += segment.num_tokens
            node = child
        self._count(tenant, segment.num_bytes)
        self._line_up(tenant, node)

    def _count(self, tenant: str, num_bytes: int) -> None:
        """A tenant holds so much more, or less."""
        self.num_bytes += num_bytes
        self._shares.count(tenant, num_bytes)

    def _line_up(self, tenant: str, node: Node) -> None:
        """Give a node its place among the others, if it has none, and make it recent."""
        self._recency[node] = tenant
        self._lines.setdefault(tenant, OrderedDict())[node] = None
        self._touch(tenant, node)

    def _touch(self, tenant: str, node: Node) -> None:
        """Make the path recent, leaf first: so the oldest unlocked entry is always a leaf."""
        move, move_own = self._recency.move_to_end, self._lines[tenant].move_to_end
        step = node
        while (parent := step.parent) is not None:
            move(step)
            move_own(step)
            step = parent

    def _remove(self, node: Node) -> None:
        assert node.parent is not None and not node.children and node.num_locks == 0
        if self.on_evict is not None and node.segment is not None:
            self.on_evict(self._path(node, self._recency[node]))
        self._drop(node)
        self._unlink(node)
        self._prune(node.parent)

    def _drop(self, node: Node) -> None:
        """Let go of a node's segment, if it has one."""
        if node.segment is not None:
            self._count(self._recency[node], -node.segment.num_bytes)
            self.num_tokens -= node.segment.num_tokens
            node.segment.free()
            node.segment = None

    def _path(self, node: Node, tenant: str) -> Path:
        nodes: list[Node] = []
        step: Node | None = node
        while step is not None:
            nodes.insert(0, step)
            step = step.parent
        segments = [each.segment for each in (nodes if self._can_splice else nodes[-1:]) if each.segment is not None]
        return Path(tenant, np.concatenate([each.ids for each in nodes]), segments)

    def _unlink(self, node: Node) -> None:
        assert node.parent is not None
        del node.parent.children[int(node.ids[0])]
        tenant = self._recency.pop(node)
        line = self._lines[tenant]
        del line[node]
        if not line:
            del self._lines[tenant]

    def _prune(self, node: Node) -> None:
        """Forget nodes that hold nothing and lead nowhere, and empty roots."""
        while not (node.children or node.segment is not None or node.num_locks):
            if node.parent is None:
                break
            self._unlink(node)
            node = node.parent
        else:
            return
        for tenant, root in list(self._roots.items()):
            if root is node:
                del self._roots[tenant]

    def check(self) -> None:
        """Raise if the books do not agree with the tree; run after every step in tests."""
        nodes = [node for root in self._roots.values() for node in _descendants(root)]
        segments = [node.segment for node in nodes if node.segment is not None]
        assert len(nodes) == len(self._recency), "recency list and tree disagree"
        assert self.num_bytes == sum(segment.num_bytes for segment in segments), "cached bytes wrong"
        assert self.num_tokens == sum(segment.num_tokens for segment in segments), "cached tokens wrong"
        assert self.num_bytes <= self.max_bytes, "over budget"
        self._check_lines()
        for node in nodes:
            assert node.parent is not None and node.parent.children[int(node.ids[0])] is node
            assert node.segment is None or not self._can_splice or node.segment.num_tokens == len(node.ids)
            assert node.num_locks >= max((child.num_locks for child in node.children.values()), default=0)

    def _check_lines(self) -> None:
        """Each tenant's own order is the common one without the others, and its bytes are those of its nodes."""
        lines: dict[str, list[Node]] = {}
        for node, tenant in self._recency.items():
            lines.setdefault(tenant, []).append(node)
        assert {tenant: list(line) for tenant, line in self._lines.items()} == lines, "a tenant's line is wrong"
        for tenant, line in lines.items():
            held = sum(node.segment.num_bytes for node in line if node.segment is not None)
            assert self._shares.held(tenant) == held, "a tenant's bytes are wrong"

    @property
    def num_locked(self) -> int:
        return sum(node.num_locks > 0 for node in self._recency)


def common_prefix(a: TokenIds, b: TokenIds) -> int:
    """Number of leading tokens that agree."""
    length = min(len(a), len(b))
    differs = a[:length] != b[:length]
    first = int(differs.argmax()) if length else 0
    return first if length and differs[first] else length


def _descendants(root: Node) -> Iterator[Node]:
    stack = list(root.children.values())
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.children.values())
