"""A model's vocabulary as grammars see it: llguidance's tokenizer, texts spelled with a family's marker tokens, and a
grammar under construction over them. Knows nothing of states.
"""

import json
import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import llguidance
import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.formats.syntax import WORD
from proxy_inference_engine.runners.base import Tokenizer
from proxy_inference_engine.state_machine.compilation import Lexicon

_BEFORE = "\x02"  # no token of any text begins with it, so it never becomes part of one
_ANY = "/(?s:.*)/"
_WORD = "/[A-Za-z0-9_.:-]{1,64}/"  # what may stand for WORD
_SPECIAL = frozenset("\\/.^$*+?()[]{}|-&~#\"'")
_ESCAPED = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


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
        """Made the first time it is wanted."""
        return self.lexicon.tokenizer(self.encode_inside)

    @property
    def lexicon(self) -> Lexicon:
        tokenizer = self.tokenizer
        return Lexicon(
            tokens=[tokenizer.token_bytes(token_id) for token_id in range(tokenizer.num_tokens)],
            special_ids=sorted(tokenizer.control_ids | tokenizer.end_ids | set(self.markers.values())),
            end_ids=sorted(self.end_ids),
            bos_id=tokenizer.bos_id,
        )

    def pieces(self, text: str) -> list[str | int]:
        """A text cut into plain text and the ids of marker tokens."""
        if self._split is None:
            return [text] if text else []
        parts = self._split.split(text)
        return [self.markers.get(part, part) for part in parts if part]

    def spell(self, text: str) -> str:
        """A text as part of a Lark rule: quoted, its marker tokens as tokens; an empty text is the empty string."""
        parts = [" ".join(map(self.spell_piece, self.pieces(part))) for part in text.split(WORD)]
        return f" {_WORD} ".join(parts).strip() or '""'

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


class Lark:
    """A Lark grammar for llguidance under construction: named rules over one vocabulary.

    Methods return text that can stand in a rule. Rule names are made here, so they never collide.
    """

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        self._vocabulary = vocabulary
        self._rules: list[str] = []
        self._named: dict[str, str] = {}  # body → name, so that equal rules exist once
        self._nested: list[dict[str, Any]] = []
        self._options = ""

    def rule(self, body: str) -> str:
        return self._add(body, f"r{len(self._rules)}", "")

    def terminal(self, body: str) -> str:
        return self._add(body, f"T{len(self._rules)}", "")

    def spell(self, text: str) -> str:
        """A text as part of a rule, its marker tokens as tokens."""
        return self._vocabulary.spell(text)

    def spell_plain(self, text: str) -> str:
        """A text as people write it: nothing in it is a token."""
        return quote(text)

    def is_token(self, text: str) -> bool:
        return len(pieces := self._vocabulary.pieces(text)) == 1 and isinstance(pieces[0], int)

    def any_text(self) -> str:
        """Some text or none; no token of the family's can be in it."""
        return f"{self.terminal('/(?s:.+)/')}?"

    def text_without(self, marker: str) -> str:
        """Text or none that does not contain a marker."""
        if self.is_token(marker):
            return self.any_text()
        return self.terminal(f"{_ANY} & ~/(?s:.*){pattern(marker)}(?s:.*)/")

    def until(self, marker: str, body: str | None = None) -> str:
        """Text or none, and the marker that ends it. `body` is what binds the text: a terminal's expression."""
        first, *rest = self._vocabulary.pieces(marker)
        ending = " ".join(self._vocabulary.spell_piece(piece) for piece in rest)
        if isinstance(first, int):
            text = self.any_text() if body is None else self.terminal(body)
            return f"{text} {self._vocabulary.spell_piece(first)} {ending}".rstrip()
        # Greedy text before a quoted marker would swallow it: a suffix ends the text at its first occurrence.
        lazy = self._add(body or _ANY, f"r{len(self._rules)}", f"[suffix={quote(first)}]")
        return f"{lazy} {ending}".rstrip()

    def stop_forcing(self) -> None:
        """Have no bytes forced, where a client wrote the grammar: in /x+/{2,3} the search for them never ends."""
        self._options = '%llguidance {"no_forcing": true}\n'

    def nested(self, definition: str) -> str:
        """A whole Lark grammar of the client's, with names of its own."""
        self.stop_forcing()
        name = f"g{len(self._nested)}"
        self._nested.append({"name": name, "lark_grammar": definition})
        return self.rule(f"@{name}")  # alone in its rule: who takes one grammar only can put it there

    def finish(self, start: str) -> str:
        """The whole grammar, as the text that llguidance takes."""
        text = self._options + "\n".join([f"start: {start}", *self._rules])
        return json.dumps({"grammars": [{"name": "main", "lark_grammar": text}, *self._nested]})

    def _add(self, body: str, name: str, attributes: str) -> str:
        key = f"{name[0]}{attributes}{body}"
        known = self._named.get(key)
        if known is None:
            known = self._named[key] = name
            self._rules.append(f"{name}{attributes}: {body}")
        return known


def pattern(text: str) -> str:
    """A text as part of a regex between slashes."""
    return "".join(f"\\{char}" if char in _SPECIAL else _ESCAPED.get(char, char) for char in text)


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
