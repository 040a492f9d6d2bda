"""A Lark grammar under construction, for llguidance: named rules over one vocabulary. Knows nothing of states."""

import json
from typing import Any

from proxy_inference_engine.state_machine.vocabulary import GrammarVocabulary, quote

_ANY = "/(?s:.*)/"


class Lark:
    """Methods return text that can stand in a rule. Rule names are made here, so they never collide."""

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
        """A text, marker tokens as tokens."""
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
        """For what a client wrote: looking for forced bytes never ends in grammars such as /x+/{2,3}."""
        self._options = '%llguidance {"no_forcing": true}\n'

    def nested(self, definition: str) -> str:
        """A whole Lark grammar of the client's, with names of its own."""
        self.stop_forcing()
        name = f"g{len(self._nested)}"
        self._nested.append({"name": name, "lark_grammar": definition})
        return f"@{name}"

    def finish(self, start: str) -> str:
        """The grammar for llguidance."""
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


_SPECIAL = frozenset("\\/.^$*+?()[]{}|-&~#\"'")
_ESCAPED = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
