"""A prefix cache of texts: a letter is a token, and what comes back is read as text again."""

import time
from collections.abc import Callable

import numpy as np

from proxy_inference_engine.cache.prefix import Match, PrefixCache
from proxy_inference_engine.runners.base import Segment, TokenIds
from proxy_inference_engine.runners.fake import FakeSegment

TOKEN_BYTES = FakeSegment.of(np.zeros(1, np.int32)).num_bytes
ROOMY = 1000


def ids_of(text: str) -> TokenIds:
    return np.array([ord(char) for char in text], np.int32)


class Cache:
    """A PrefixCache spoken to in text; notes from where each export had to start."""

    def __init__(
        self, max_tokens: int = ROOMY, *, can_splice: bool = True, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.real = PrefixCache(max_tokens * TOKEN_BYTES, can_splice=can_splice, clock=clock)
        self.exports: list[int] = []
        self.segments: list[FakeSegment] = []

    def insert(self, text: str, tenant: str = "a") -> None:
        ids = ids_of(text)

        def export(start: int) -> Segment:
            self.exports.append(start)
            self.segments.append(FakeSegment.of(ids[start:]))
            return self.segments[-1]

        self.real.insert(tenant, ids, export, TOKEN_BYTES)
        self.real.check()

    def match(self, text: str, tenant: str = "a") -> str:
        """The text that the matched segments restore."""
        match = self.real.match(tenant, ids_of(text))
        self.real.check()
        return restored(match)


def restored(match: Match) -> str:
    text = ""
    for segment in match.segments:
        assert isinstance(segment, FakeSegment) and not segment.is_freed
        text += "".join(map(chr, segment.ids))
    assert len(text) >= match.num_tokens
    return text[: match.num_tokens]
