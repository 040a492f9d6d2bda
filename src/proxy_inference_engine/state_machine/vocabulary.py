"""A model's vocabulary as grammars see it: llguidance's tokenizer, and texts spelled with a family's marker tokens."""

import json
import re
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache

import llguidance
import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import Tokenizer

_MAX_ENCODED, _MAX_ENCODED_CHARS = 4096, 256
_BEFORE = "\x02"  # no token of any text begins with it, so it never becomes part of one
# Tokens that a string of JSON takes as a whole while it has room for so many characters: their part of the mask is
# ready-made. More lengths help strings that have little room left, but each costs a walk of its own where none fits.
_IN_STRING = r'[^"\\\x00-\x1F\x7F]'
_SLICES = [r"[\x20\x0A\x0D\x09]+", *(f"{_IN_STRING}{{1,{most}}}" for most in (7, 9, 12, 30)), f"{_IN_STRING}+"]


class _Bridge:
    """What llguidance asks of a tokenizer. Control tokens and markers are no text to it: no regex matches them."""

    def __init__(self, tokenizer: Tokenizer, encode: Callable[[str], list[int]], marker_ids: Iterable[int]) -> None:
        self.eos_token_id = min(tokenizer.end_ids)
        self.bos_token_id = tokenizer.bos_id
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in range(tokenizer.num_tokens)]
        self.special_token_ids = sorted(tokenizer.control_ids | tokenizer.end_ids | set(marker_ids))
        # What grammars force is the same few texts over and over: keys, and what stands between them.
        self._encode = lru_cache(maxsize=_MAX_ENCODED)(encode)

    def __call__(self, text: str) -> list[int]:
        if not isinstance(text, str):
            raise TypeError("only text is encoded")  # llguidance tries bytes first, once
        return self._encode(text) if len(text) <= _MAX_ENCODED_CHARS else self._encode.__wrapped__(text)


class GrammarVocabulary:
    """Made once per model. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, markers: Iterable[str]) -> None:
        self.num_tokens = tokenizer.num_tokens
        self.markers = {text: tokenizer.specials[text] for text in markers if text in tokenizer.specials}
        self.end_ids = tokenizer.end_ids
        self.tokenizer = tokenizer
        self.encode_inside = _encoder_inside(tokenizer)  # a text that follows another, without any marker token
        self._completing: dict[tuple[str, int], NDArray[np.intp]] = {}
        names = sorted(self.markers, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, names)) + ")") if names else None

    @cached_property
    def ll(self) -> llguidance.LLTokenizer:
        """Takes about 0.2 s for 50,000 tokens to make, the first time it is wanted."""
        bridge = llguidance.TokenizerWrapper(_Bridge(self.tokenizer, self.encode_inside, self.markers.values()))
        return llguidance.LLTokenizer(bridge, eos_token=sorted(self.end_ids), slices=_SLICES)

    def pieces(self, text: str) -> list[str | int]:
        """A text cut into plain text and the ids of marker tokens."""
        if self._split is None:
            return [text] if text else []
        parts = self._split.split(text)
        return [self.markers.get(part, part) for part in parts if part]

    def spell(self, text: str) -> str:
        """A text as part of a Lark rule: quoted, its marker tokens as tokens; an empty text is the empty string."""
        return " ".join(self.spell_piece(piece) for piece in self.pieces(text)) or '""'

    def encode(self, text: str) -> list[int]:
        """A text as ids, its marker tokens as tokens."""
        ids: list[int] = []
        for piece in self.pieces(text):
            ids += [piece] if isinstance(piece, int) else self.encode_inside(piece)
        return ids

    def completing(self, marker: str, tail: bytes) -> NDArray[np.intp]:
        """The tokens that would complete a marker after these bytes, and every end token."""
        own_id = self.markers.get(marker)
        if own_id is not None:
            return np.array(sorted(self.end_ids | {own_id}))
        target = marker.encode()
        num_begun = next(num for num in range(len(target) - 1, -1, -1) if tail.endswith(target[:num]))
        key = (marker, num_begun)
        found = self._completing.get(key)
        if found is None:
            begun, last = target[:num_begun], target[-1:]
            pieces = ((token_id, self.tokenizer.token_bytes(token_id)) for token_id in range(self.num_tokens))
            ids = {token_id for token_id, piece in pieces if last in piece and target in begun + piece}
            found = self._completing[key] = np.array(sorted(ids | self.end_ids))
        return found

    @staticmethod
    def spell_piece(piece: str | int) -> str:
        return f"<[{piece}]>" if isinstance(piece, int) else quote(piece)


def quote(text: str) -> str:
    """A text as a Lark string."""
    return json.dumps(text)


def _encoder_inside(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    """Some vocabularies put a space before a text that nothing precedes. What a grammar forces has to be exact."""
    if b"".join(map(tokenizer.token_bytes, tokenizer.encode("a"))) == b"a":
        return tokenizer.encode
    before = tokenizer.encode(_BEFORE)

    def encode(text: str) -> list[int]:
        ids = tokenizer.encode(_BEFORE + text)
        return ids[len(before) :] if ids[: len(before)] == before else tokenizer.encode(text)

    return encode
