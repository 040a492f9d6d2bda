"""DRY's sequence breakers: strings to the token ids that contain them."""

from functools import lru_cache

from proxy_inference_engine.runners.base import Tokenizer

DEFAULT_BREAKERS = ("\n", ":", '"', "*")
_CACHED_STRINGS = 256


class Breakers:
    """Scans the vocabulary once a string. Slow the first time: call it off the event loop."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._pieces: list[bytes] | None = None
        self._find = lru_cache(_CACHED_STRINGS)(self._scan)

    def ids(self, strings: list[str] | None) -> frozenset[int]:
        wanted = DEFAULT_BREAKERS if strings is None else strings
        return frozenset().union(*(self._find(string) for string in wanted))

    def _scan(self, string: str) -> frozenset[int]:
        if self._pieces is None:
            self._pieces = [self._tokenizer.token_bytes(id_) for id_ in range(self._tokenizer.num_tokens)]
        needle = string.encode()
        return frozenset(id_ for id_, piece in enumerate(self._pieces) if needle in piece)
