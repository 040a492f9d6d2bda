"""One choice's tokens as text: characters, labelled pieces, and which token each visible character came from.

Knows nothing of stop strings, events or ends.
"""

import codecs
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from proxy_inference_engine.formats.base import Labels
from proxy_inference_engine.output.events import TokenLogprob
from proxy_inference_engine.output.logprobs import LogprobQueue
from proxy_inference_engine.output.parser import Parser
from proxy_inference_engine.output.pieces import LabelledPiece, VisibleText
from proxy_inference_engine.runners.base import Tokenizer


class Detokenizer:
    """Token ids to text, one token at a time: never half a character.

    The text is what `bytes.decode("utf-8", "replace")` gives over the bytes of all tokens together; the bytes of an
    unfinished character are held back.

    `start` and `end` say where the last token's characters lie in the whole text. A character that several
    tokens share lies in the range of each.
    """

    __slots__ = ("_control_ids", "_pending", "_tokenizer", "end", "num_chars", "start")

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._control_ids = tokenizer.control_ids
        self._pending = b""
        self.num_chars = 0
        self.start = 0
        self.end = 0

    def feed(self, token_id: int) -> str:
        """The characters this token completes; none for a control token."""
        if token_id in self._control_ids:
            return ""
        piece = self._tokenizer.token_bytes(token_id)
        if self._pending or not piece.isascii():
            return self._feed_bytes(piece)
        text = piece.decode("ascii")
        self.start = self.num_chars
        self.end = self.num_chars = self.num_chars + len(text)
        return text

    def finish(self) -> str:
        """What is left: an unfinished character becomes U+FFFD."""
        text = self._pending.decode("utf-8", "replace")
        self._pending = b""
        self.num_chars += len(text)
        return text

    def _feed_bytes(self, piece: bytes) -> str:
        pending = self._pending
        # The first byte either goes on with the pending character or breaks it off and begins the next.
        self.start = self.num_chars + max(_count(pending + piece[:1]) - 1, 0)
        data = pending + piece
        text, num_used = codecs.utf_8_decode(data, "replace", False)
        self._pending = data[num_used:]
        self.num_chars += len(text)
        self.end = self.num_chars + _count(self._pending)
        return text


def _count(data: bytes) -> int:
    return len(data.decode("utf-8", "replace"))


class TokenText(NamedTuple):
    """Visible text that one token completed."""

    text: str
    num_tokens: int  # up to and with that token


@dataclass(slots=True)
class _Row:
    start: int  # the token's characters in the raw text
    end: int
    num_tokens: int
    entry: TokenLogprob | None
    shown_start: int = -1  # those of them that are visible, in the visible text; -1: none yet
    shown_end: int = -1


class TokenSpans:
    """Which token each visible character came from, given which raw text is visible.

    Holds a row for each token until everything about its text is decided. Tokens and texts come in order.
    """

    def __init__(self) -> None:
        self.logprobs = LogprobQueue()  # entries of the tokens with visible text, in places of the visible text
        self._rows: deque[_Row] = deque()
        self._num_shown = 0
        self._num_settled = 0  # tokens that have no row any more

    def add(self, start: int, end: int, num_tokens: int, entry: TokenLogprob | None) -> None:
        self._rows.append(_Row(start, end, num_tokens, entry))

    def show(self, text: VisibleText) -> list[TokenText]:
        """This text is visible, and nothing before it will be: divide it by the tokens that completed it."""
        self._settle(text.start)
        num_tokens = [self._num_settled]
        starts = [text.start]
        for row in self._rows:
            if row.start >= text.end:
                break
            self._note(row, text)
            if text.start < row.start and not text.is_marker:
                starts.append(row.start)
                num_tokens.append(row.num_tokens)
            else:
                num_tokens[-1] = row.num_tokens
        self._num_shown += len(text.text)
        self._settle(text.end)
        cuts = [start - text.start for start in starts] + [len(text.text)]
        return [
            TokenText(text.text[cuts[index] : cuts[index + 1]], num)
            for index, num in enumerate(num_tokens)
            if cuts[index] < cuts[index + 1]
        ]

    def interrupt(self) -> None:
        """Something that is not visible text has come: tokens that were partly visible will be no more so."""
        while self._rows and self._rows[0].shown_start >= 0:
            self._hand_over(self._rows.popleft())

    def finish(self) -> None:
        while self._rows:
            self._hand_over(self._rows.popleft())

    def _note(self, row: _Row, text: VisibleText) -> None:
        first, last = max(row.start, text.start) - text.start, min(row.end, text.end) - text.start
        if first >= last:
            return
        if row.shown_start < 0:
            row.shown_start = self._num_shown + first
        row.shown_end = self._num_shown + (len(text.text) if text.is_marker else last)

    def _settle(self, position: int) -> None:
        while self._rows and self._rows[0].end <= position:
            self._hand_over(self._rows.popleft())

    def _hand_over(self, row: _Row) -> None:
        self._num_settled = row.num_tokens
        if row.entry is not None and row.shown_start >= 0:
            self.logprobs.add(row.shown_start, row.shown_end, row.entry)


class Labelling:
    """Tokens to labelled pieces: tells markers from text, and counts the tokens of reasoning.

    `needs_parts`: visible text will be divided by tokens; otherwise only log-probabilities make that necessary.
    """

    def __init__(self, labels: Labels, tokenizer: Tokenizer, *, needs_parts: bool) -> None:
        self.num_reasoning_tokens = 0  # of the blocks with their markers
        self.spans = TokenSpans() if needs_parts else None
        self._tokens = labels.tokens
        self._control_ids = tokenizer.control_ids
        self._detokenizer = Detokenizer(tokenizer)
        self._parser = Parser(labels)
        self._num_marks = 0

    def feed(self, token_id: int, num_tokens: int, entry: TokenLogprob | None) -> list[LabelledPiece]:
        """The pieces that the token completes; it is number `num_tokens` of the choice."""
        if entry is not None and self.spans is None:
            self.spans = TokenSpans()
        was_reasoning = self._parser.is_reasoning
        marker = self._tokens.get(token_id)
        if marker is not None:
            pieces = self._mark(marker, num_tokens, entry)
        else:
            detokenizer = self._detokenizer
            text = detokenizer.feed(token_id)
            if self.spans is not None and token_id not in self._control_ids:
                start, end = detokenizer.start + self._num_marks, detokenizer.end + self._num_marks
                self.spans.add(start, end, num_tokens, entry)
            pieces = self._parser.feed(text) if text else []
        self.num_reasoning_tokens += was_reasoning or self._parser.is_reasoning
        return pieces

    def finish(self, *, is_cut: bool) -> list[LabelledPiece]:
        """What is left; of a character that a limit cut off, nothing: it may belong to a marker or to arguments."""
        rest = "" if is_cut else self._detokenizer.finish()
        return self._parser.feed(rest) + self._parser.finish(is_cut=is_cut)

    def parts(self, text: VisibleText, num_tokens: int) -> list[TokenText]:
        """A visible text divided by the tokens that completed it."""
        return [TokenText(text.text, num_tokens)] if self.spans is None else self.spans.show(text)

    def _mark(self, marker: str, num_tokens: int, entry: TokenLogprob | None) -> list[LabelledPiece]:
        """A marker ends a character that was begun, and counts as one character itself."""
        pieces = self._parser.feed(self._detokenizer.finish())
        if self.spans is not None:
            start = self._detokenizer.num_chars + self._num_marks
            self.spans.add(start, start + 1, num_tokens, entry)
        self._num_marks += 1
        return pieces + self._parser.mark(marker)
