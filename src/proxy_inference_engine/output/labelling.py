"""Tokens of one choice to labelled pieces: detokenizes, tells markers from text, counts the tokens of reasoning.

Knows nothing of stop strings, events or ends.
"""

from proxy_inference_engine.formats.labels import Labels
from proxy_inference_engine.output.detokenizer import Detokenizer
from proxy_inference_engine.output.events import TokenLogprob
from proxy_inference_engine.output.labelled import Piece, Text
from proxy_inference_engine.output.ledger import Ledger, Part
from proxy_inference_engine.output.parser import Parser
from proxy_inference_engine.runners.base import Tokenizer


class Labelling:
    """`needs_parts`: visible text will be divided by tokens; otherwise only log-probabilities make that necessary."""

    def __init__(self, labels: Labels, tokenizer: Tokenizer, *, needs_parts: bool) -> None:
        self.num_reasoning_tokens = 0  # of the blocks with their markers
        self.ledger = Ledger() if needs_parts else None
        self._tokens = labels.tokens
        self._control_ids = tokenizer.control_ids
        self._detokenizer = Detokenizer(tokenizer)
        self._parser = Parser(labels)
        self._num_marks = 0

    def feed(self, token_id: int, num_tokens: int, entry: TokenLogprob | None) -> list[Piece]:
        """The pieces that the token completes; it is number `num_tokens` of the choice."""
        if entry is not None and self.ledger is None:
            self.ledger = Ledger()
        was_reasoning = self._parser.is_reasoning
        marker = self._tokens.get(token_id)
        pieces = (
            self._feed_text(token_id, num_tokens, entry) if marker is None else self._mark(marker, num_tokens, entry)
        )
        self.num_reasoning_tokens += was_reasoning or self._parser.is_reasoning
        return pieces

    def finish(self, *, is_cut: bool) -> list[Piece]:
        """What is left; of a character that a limit cut off, nothing: it may belong to a marker or to arguments."""
        rest = "" if is_cut else self._detokenizer.finish()
        return self._parser.feed(rest) + self._parser.finish(is_cut=is_cut)

    def parts(self, text: Text, num_tokens: int) -> list[Part]:
        """A visible text divided by the tokens that completed it."""
        return [Part(text.text, num_tokens)] if self.ledger is None else self.ledger.show(text)

    def _feed_text(self, token_id: int, num_tokens: int, entry: TokenLogprob | None) -> list[Piece]:
        detokenizer = self._detokenizer
        text = detokenizer.feed(token_id)
        if self.ledger is not None and token_id not in self._control_ids:
            start, end = detokenizer.start + self._num_marks, detokenizer.end + self._num_marks
            self.ledger.add(start, end, num_tokens, entry)
        return self._parser.feed(text) if text else []

    def _mark(self, marker: str, num_tokens: int, entry: TokenLogprob | None) -> list[Piece]:
        """A marker ends a character that was begun, and counts as one character itself."""
        pieces = self._parser.feed(self._detokenizer.finish())
        if self.ledger is not None:
            start = self._detokenizer.num_chars + self._num_marks
            self.ledger.add(start, start + 1, num_tokens, entry)
        self._num_marks += 1
        return pieces + self._parser.mark(marker)
