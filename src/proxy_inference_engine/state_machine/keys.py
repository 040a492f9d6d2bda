"""How objects and strings are written, and what of a vocabulary a watch has to look at.

Most tokens say the same to a watch: text inside of a string is text. So tokens are looked at by their form, what is left
of them without what stands in strings and numbers; and by what they spell only where that could be a text that is known.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import Tokenizer
from proxy_inference_engine.state_machine.shapes import Shape

START = "\udcff"  # stands in a lead for the beginning of an answer
# In the form of a token, for any text inside of a string and any digits; in no text.
SOME_TEXT, SOME_DIGITS = 0xFF, 0xFE
_DIGITS = frozenset(b"-+.0123456789")


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


# What stands before values that have to be watched: texts in their order, no text twice, and what is known of the values.
Leads = dict[KeySpelling, dict[str, Shape | None]]


@dataclass(frozen=True, slots=True)
class TokenForms:
    """Tokens by their form, as it is where a string is open or where none is."""

    forms: list[bytes]
    ids: NDArray[np.intp]  # form after form
    starts: NDArray[np.intp]
    special_ids: NDArray[np.intp]  # with a text that begins in the middle of them: no form tells what they do

    def allowed(self, allowed: NDArray[np.bool_]) -> Iterator[tuple[bytes, NDArray[np.intp]]]:
        """The forms that allowed tokens have, each with all its tokens."""
        counts = np.add.reduceat(allowed[self.ids], self.starts, dtype=np.intp)
        for index in np.flatnonzero(counts).tolist():
            end = self.starts[index + 1] if index + 1 < len(self.starts) else len(self.ids)
            yield self.forms[index], self.ids[self.starts[index] : end]


class KeyTokens:
    """The tokens of a vocabulary that can end a key, and what else a watch asks of it."""

    def __init__(self, tokenizer: Tokenizer, spelling: KeySpelling) -> None:
        self.token_bytes = tokenizer.token_bytes
        self._num_tokens = tokenizer.num_tokens
        pieces = ((tokenizer.token_bytes(token_id), token_id) for token_id in range(tokenizer.num_tokens))
        ending = sorted((piece, token_id) for piece, token_id in pieces if spelling.closing in piece)
        self._texts = [piece for piece, _ in ending]
        self._ids = [token_id for _, token_id in ending]
        self.ending_ids = np.array(self._ids, np.intp)
        inside = rb"(?:[^\"\\]|\\.)*" if spelling.has_escapes else rb"[^:]+"
        whole = re.compile(rb"(?:^|[{,])[ \t\n\r]*" + spelling.opening + inside + spelling.closing, re.DOTALL)
        # Tokens with a key's beginning and its end, of which there are few.
        self.whole = {token_id: piece for piece, token_id in ending if whole.search(piece)}
        self.whole_ids = np.array(list(self.whole), np.intp)

    def beginning_with(self, text: bytes) -> list[int]:
        """Tokens that begin with a text whose last byte ends a key."""
        after = text[:-1] + bytes([text[-1] + 1])
        return self._ids[bisect_left(self._texts, text) : bisect_left(self._texts, after)]

    def along(self, text: bytes) -> list[int]:
        """Tokens that are the beginning of a text, or go on after it; its last byte ends a string."""
        beginnings = (text[:length] for length in range(1, min(len(text), self._longest) + 1))
        return [*(one for piece in beginnings for one in self._by_text.get(piece, ())), *self.beginning_with(text)]

    @cached_property
    def _by_text(self) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for token_id in range(self._num_tokens):
            found.setdefault(self.token_bytes(token_id), []).append(token_id)
        return found

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._by_text), default=0)

    @cached_property
    def in_string(self) -> TokenForms:
        return self._forms(in_string=True)

    @cached_property
    def outside(self) -> TokenForms:
        return self._forms(in_string=False)

    def _forms(self, in_string: bool) -> TokenForms:
        by_form: dict[bytes, list[int]] = {}
        special: list[int] = []
        for piece, ids in self._by_text.items():
            form = form_of(piece, in_string)
            start = 1 if in_string else 2 if form[:1] == b'"' else 0
            if SOME_TEXT in form[start:] or (SOME_DIGITS in form and len(form) > 1):
                special += ids
            elif form != bytes([SOME_TEXT]) and form:
                by_form.setdefault(form, []).extend(ids)
        sizes = [len(ids) for ids in by_form.values()]
        flat = [token_id for ids in by_form.values() for token_id in ids]
        starts = np.cumsum([0, *sizes[:-1]])
        return TokenForms(list(by_form), np.array(flat, np.intp), starts, np.array(special, np.intp))


def form_of(piece: bytes, in_string: bool) -> bytes:
    """A piece of JSON without what stands in strings and numbers."""
    form = bytearray()
    is_escaped = False
    for byte in piece:
        if in_string and (is_escaped or byte != 0x22):
            is_escaped = byte == 0x5C and not is_escaped
            byte = SOME_TEXT
        elif byte == 0x22:
            in_string = not in_string
        elif byte in _DIGITS:
            byte = SOME_DIGITS
        if byte not in (SOME_TEXT, SOME_DIGITS) or form[-1:] != bytes([byte]):
            form.append(byte)
    return bytes(form)
