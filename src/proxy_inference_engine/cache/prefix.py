"""The prefix cache: a radix tree over token ids, one root per tenant, whose nodes hold KV outside the running slots.

Where the runner can splice, a node holds the KV of its own tokens and any prefix of any path can be restored. Where
it cannot (sliding windows, recurrent state), a node holds a snapshot of everything from the root, and only a whole
snapshot is reused. Knows nothing of requests; all calls come from the engine thread.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from proxy_inference_engine.runners.base import Segment, TokenIds


@dataclass(slots=True, eq=False)
class Node:
    """An edge and its end: `ids` lead from the parent to here."""

    ids: TokenIds
    segment: Segment | None
    parent: "Node | None"
    children: dict[int, "Node"] = field(default_factory=dict)
    num_locks: int = 0


class Match(NamedTuple):
    """The longest usable prefix: restore `segments` and cut them to `num_tokens`."""

    num_tokens: int
    segments: list[Segment]
    node: Node | None  # deepest node used; lock it while the segments are needed


class Path(NamedTuple):
    """A text in the tree, and the KV of it: one segment a node where the runner can splice, else the last one's."""

    tenant: str
    ids: TokenIds
    segments: list[Segment]


class PrefixCache:
    """Invariants: bytes used = sum over nodes; a parent is at least as recent as its children; a locked node's
    ancestors are locked."""

    def __init__(self, max_bytes: int, *, can_splice: bool = True) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self.num_tokens = 0
        self._can_splice = can_splice
        self._roots: dict[str, Node] = {}
        self._recency: OrderedDict[Node, str] = OrderedDict()  # oldest first; value: the tenant
        self.on_evict: Callable[[Path], None] | None = None  # told of a text before its last segment is freed

    def match(self, tenant: str, ids: TokenIds) -> Match:
        """Longest cached prefix of `ids`; what it returns counts as used now."""
        segments: list[Segment] = []
        found = Match(0, segments, None)
        depth = 0
        for node, num_shared in self._walk(tenant, ids):
            depth += num_shared
            if self._can_splice:
                assert node.segment is not None
                segments.append(node.segment)
                found = Match(depth, segments, node)
            elif num_shared == len(node.ids) and node.segment is not None:
                found = Match(depth, [node.segment], node)
        if found.node is not None:
            self._touch(found.node)
        return found

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
            self._touch(node)
            return
        self.lock(node)
        try:
            segment = export(start) if self.make_room((len(ids) - start) * num_bytes) else None
            if segment is not None and not self.make_room(segment.num_bytes):  # the estimate was too low
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

    def make_room(self, num_bytes: int) -> bool:
        """Evict the least recently used leaves until so many bytes fit; False if they can't."""
        if num_bytes > self.max_bytes:
            return False
        while self.num_bytes + num_bytes > self.max_bytes:
            if not self.evict_one():
                return False
        return True

    def evict_one(self) -> bool:
        """Drop the least recently used unlocked leaf."""
        for node, tenant in self._recency.items():
            if node.num_locks == 0 and not node.children:
                self._remove(node, tenant)
                return True
        return False

    def clear(self) -> None:
        while self.evict_one():
            pass

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

    def texts(self) -> Iterator[Path]:
        """All there is, the most recent first: texts that no other one begins with, and every snapshot."""
        for node, tenant in reversed(self._recency.items()):
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
        upper = Node(node.ids[:at].copy(), None, parent, num_locks=node.num_locks)
        if self._can_splice:
            assert node.segment is not None
            num_bytes = node.segment.num_bytes
            upper.segment, node.segment = node.segment.split(at)
            self.num_bytes += upper.segment.num_bytes + node.segment.num_bytes - num_bytes
        parent.children[int(upper.ids[0])] = upper
        node.ids = node.ids[at:].copy()
        node.parent = upper
        upper.children[int(node.ids[0])] = node
        self._recency[upper] = tenant
        self._touch(upper)
        return upper

    def _attach(self, tenant: str, node: Node, ids: TokenIds, segment: Segment) -> None:
        if len(ids) == 0:  # a snapshot for a node that only marked a fork
            node.segment = segment
            self.num_tokens += segment.num_tokens
        else:
            child = Node(ids.copy(), segment, node)
            node.children[int(ids[0])] = child
            self._recency[child] = tenant
            self.num_tokens += segment.num_tokens
            node = child
        self.num_bytes += segment.num_bytes
        self._touch(node)

    def _touch(self, node: Node) -> None:
        """Make the path recent, leaf first: so the oldest unlocked entry is always a leaf."""
        step: Node | None = node
        while step is not None and step.parent is not None:
            self._recency.move_to_end(step)
            step = step.parent

    def _remove(self, node: Node, tenant: str) -> None:
        assert node.parent is not None and not node.children and node.num_locks == 0
        if self.on_evict is not None and node.segment is not None:
            self.on_evict(self._path(node, tenant))
        self._drop(node)
        self._unlink(node)
        self._prune(node.parent)

    def _drop(self, node: Node) -> None:
        """Let go of a node's segment, if it has one."""
        if node.segment is not None:
            self.num_bytes -= node.segment.num_bytes
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
        del self._recency[node]

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
        for node in nodes:
            assert node.parent is not None and node.parent.children[int(node.ids[0])] is node
            assert node.segment is None or not self._can_splice or node.segment.num_tokens == len(node.ids)
            assert node.num_locks >= max((child.num_locks for child in node.children.values()), default=0)

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
