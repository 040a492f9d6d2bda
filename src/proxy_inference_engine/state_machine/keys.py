"""How objects are written, and which tokens of a vocabulary a watch has to look at."""

import re
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import Tokenizer
from proxy_inference_engine.state_machine.shapes import Shape

START = "\udcff"  # stands in a lead for the beginning of an answer


@dataclass(frozen=True, slots=True)
class KeySpelling:
    """How objects are written: opening KEY closing, and strings between marks."""

    opening: bytes
    closing: bytes
    mark: bytes
    has_escapes: bool
    leads_into_object: bool  # a value's lead has opened it


JSON_KEYS = KeySpelling(b'"', b'"', b'"', has_escapes=True, leads_into_object=False)


def marked_keys(mark: str) -> KeySpelling:
    """Bare keys, and strings between marks."""
    return KeySpelling(b"", b":", mark.encode(), has_escapes=False, leads_into_object=True)


# What stands before values that are watched, texts in their order, no text twice; and where items in them differ.
Leads = dict[KeySpelling, dict[str, Shape | None]]


class KeyTokens:
    """The tokens of a vocabulary that can end a key, and those that can do more to an array than go on with an item."""

    def __init__(self, tokenizer: Tokenizer, spelling: KeySpelling) -> None:
        self.token_bytes = tokenizer.token_bytes
        self._num_tokens = tokenizer.num_tokens
        self._by_text: dict[bytes, list[int]] = {}
        self._sorted: list[bytes] = []
        self._longest = 0
        pieces = ((tokenizer.token_bytes(token_id), token_id) for token_id in range(tokenizer.num_tokens))
        ending = [(piece, token_id) for piece, token_id in pieces if spelling.closing in piece]
        self.endings: dict[bytes, list[int]] = {}  # by what stands before a key's end, or a string's
        for piece, token_id in ending:
            for end in re.finditer(re.escape(spelling.closing), piece):
                self.endings.setdefault(piece[: end.start()], []).append(token_id)
        inside = rb"(?:[^\"\\]|\\.)*" if spelling.has_escapes else rb"[^:]+"
        whole = re.compile(rb"(?:^|[{,])[ \t\n\r]*" + spelling.opening + inside + spelling.closing, re.DOTALL)
        # Tokens with a key's beginning and its end, of which there are few.
        self.whole = {token_id: piece for piece, token_id in ending if whole.search(piece)}
        self.whole_ids = np.array(list(self.whole), np.intp)

    def sort(self) -> None:
        """Look at all tokens, a tenth of a second, for arrays whose items differ: not when the first mask is due."""
        if self._sorted:
            return
        for token_id in range(self._num_tokens):
            self._by_text.setdefault(self.token_bytes(token_id), []).append(token_id)
        self._longest = max(map(len, self._by_text), default=0)
        # Tokens that may end an item that is no string, write a zero with a sign, or begin an object: to be tried.
        self.ids_in_array = self._matching(rb"[\]{},]|\A[ \t\n\r]*[0-]")
        # Those that may end a string and go on with another item. Those that may begin an array and end an item, go
        # from a key to its value, or from an object to another item; and where they begin inside of a key.
        self.ids_in_string = self._matching(rb'".*,')
        to_value = rb'":[ \t\n\r]*[^ \t\n\r]'
        self.ids_elsewhere = self._matching(rb"\[.*,|\}[ \t\n\r]*,|" + to_value)
        self.ids_in_key = self._matching(rb'\A[^"]*' + to_value + rb'|".*(?:\[.*,|\}[ \t\n\r]*,|":)')
        # Those with a comma or a bracket that is in no string, where they begin outside of strings, and inside.
        self.ids_ending = self._matching(rb'\A[^"]*[,}]|".*".*[,}]')
        self.ids_ending_string = self._matching(rb'".*[,}]')
        # All that may do something after a string's end; and those that do the same whatever the string is.
        self.ids_after_string = self._matching(rb'".*[,}]|' + to_value)
        plain = re.compile(rb'(?:[^"\\]|\\.)*"[ \t\n\r,\[\]{}]*"?', re.DOTALL)
        is_plain = np.array([bool(plain.fullmatch(self.token_bytes(one))) for one in self.ids_after_string], np.bool_)
        self.ids_plainly_after = self.ids_after_string[is_plain]
        self.ids_oddly_after = self.ids_after_string[~is_plain]
        self._sorted = sorted(self._by_text)

    def along(self, text: bytes) -> list[int]:
        """Tokens that are the beginning of a text, or go on after it."""
        beginnings = (text[:length] for length in range(1, min(len(text), self._longest + 1)))
        found = [token_id for piece in beginnings for token_id in self._by_text.get(piece, ())]
        first = bisect_left(self._sorted, text)
        while first < len(self._sorted) and self._sorted[first].startswith(text):
            found += self._by_text[self._sorted[first]]
            first += 1
        return found

    def _matching(self, pattern: bytes) -> NDArray[np.intp]:
        has = re.compile(pattern, re.DOTALL).search
        return np.array([each for text, ids in self._by_text.items() if has(text) for each in ids], np.intp)
