"""The prefix cache as a person may look at it: its tree as a list of values. Made in the engine's thread."""

from typing import NamedTuple

from proxy_inference_engine.cache.prefix import Node, PrefixCache
from proxy_inference_engine.runners.base import TokenIds

_MAX_FIRST_IDS = 32  # of each node, for those who may read them


class NodeView(NamedTuple):
    id: int  # places in the list
    parent: int | None  # None: it begins a text
    tenant: str
    start: int  # tokens before it
    num_tokens: int
    num_bytes: int
    num_hits: int  # sequences that began with it
    num_texts: int  # that go through it, of those in the view
    first_ids: TokenIds


class CacheView(NamedTuple):
    nodes: list[NodeView]  # parents before children
    num_nodes: int  # in the whole tree
    num_tokens: int
    num_bytes: int
    max_bytes: int


def view_of(cache: PrefixCache, max_nodes: int) -> CacheView:
    """The most recently used nodes, each with all above it."""
    chosen: dict[Node, str] = {}
    num_nodes = 0
    for node, tenant in cache.nodes():
        num_nodes += 1
        if len(chosen) < max_nodes:
            chosen[node] = tenant
    ids = {node: number for number, node in enumerate(chosen)}
    texts = _count_texts(chosen)
    starts: dict[Node, int] = {}
    nodes = []
    for node, tenant in chosen.items():
        parent = node.parent if node.parent in ids else None
        starts[node] = 0 if parent is None else starts[parent] + len(parent.ids)
        nodes.append(
            NodeView(
                id=ids[node],
                parent=None if parent is None else ids[parent],
                tenant=tenant,
                start=starts[node],
                num_tokens=len(node.ids),
                num_bytes=0 if node.segment is None else node.segment.num_bytes,
                num_hits=node.num_hits,
                num_texts=texts[node],
                first_ids=node.ids[:_MAX_FIRST_IDS].copy(),
            )
        )
    return CacheView(nodes, num_nodes, cache.num_tokens, cache.num_bytes, cache.max_bytes)


def _count_texts(chosen: dict[Node, str]) -> dict[Node, int]:
    """How many texts end at or below each node. Children come after their parents, so it counts from the last."""
    texts = dict.fromkeys(chosen, 0)
    for node in reversed(chosen):
        texts[node] = texts[node] or 1
        if node.parent in texts:
            texts[node.parent] += texts[node]
    return texts
