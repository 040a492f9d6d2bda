"""Small tokenizers for grammars (bytes, longer pieces, chosen special tokens) and walks over a machine's mask."""

from collections.abc import Iterable
from typing import Literal

from proxy_inference_engine.state_machine.demand import Demand
from proxy_inference_engine.state_machine.machine import Machine, MachineBuilder
from proxy_inference_engine.types import Constraint, Matcher

END, OTHER_END = 256, 257
_CONTROL = {"<|end_a|>": END, "<|end_b|>": OTHER_END}

Verdict = Literal["refused", "open", "ended", "complete"]


class PieceTokenizer:
    """Ids 0 to 255 are bytes, then two end tokens, then longer pieces (the longest that fits wins), then specials."""

    def __init__(self, *, pieces: Iterable[str] = (), specials: Iterable[str] = ()) -> None:
        texts = [*_CONTROL, *pieces, *specials]
        self._bytes = [bytes([byte]) for byte in range(256)] + [text.encode() for text in texts]
        ids = {text: 256 + index for index, text in enumerate(texts)}
        self._pieces = {text.encode(): ids[text] for text in pieces}
        self._longest = max(map(len, self._pieces), default=1)
        self.specials = {text: ids[text] for text in [*_CONTROL, *specials]}
        self.num_tokens = len(self._bytes)
        self.end_ids = frozenset(_CONTROL.values())
        self.control_ids = frozenset(_CONTROL.values())
        self.bos_id: int | None = None

    def encode(self, text: str) -> list[int]:
        data, at = text.encode(), 0
        ids: list[int] = []
        while at < len(data):
            sizes = range(min(self._longest, len(data) - at), 1, -1)
            size = next((size for size in sizes if data[at : at + size] in self._pieces), 1)
            ids.append(self._pieces[data[at : at + size]] if size > 1 else data[at])
            at += size
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        return self._bytes[token_id]


def constraint_of(machine: Machine) -> Constraint:
    assert machine.constraint is not None
    return machine.constraint


def start(builder: MachineBuilder, demand: Demand) -> Matcher:
    return constraint_of(builder.build(demand)).start()


def verdict(builder: MachineBuilder, demand: Demand, text: str) -> Verdict:
    """Where a text leads, its markers as tokens: off the mask, on the way, to a possible or to the only end."""
    return walk(start(builder, demand), builder.vocabulary.encode(text))


def walk(matcher: Matcher, token_ids: Iterable[int]) -> Verdict:
    for token_id in token_ids:
        mask = matcher.mask()
        if matcher.is_complete or (mask is not None and not mask[token_id]):
            return "refused"
        matcher.accept(token_id)
    if matcher.is_complete:
        return "complete"
    mask = matcher.mask()
    return "ended" if mask is None or (mask[END] and mask[OTHER_END]) else "open"
