"""Which token each visible character came from. Knows nothing of labels: it is told which raw text is visible."""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from proxy_inference_engine.output.events import TokenLogprob
from proxy_inference_engine.output.labelled import Text
from proxy_inference_engine.output.logprobs import LogprobQueue


class Part(NamedTuple):
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


class Ledger:
    """Holds a row for each token until everything about its text is decided. Tokens and texts come in order."""

    def __init__(self) -> None:
        self.logprobs = LogprobQueue()  # entries of the tokens with visible text, in places of the visible text
        self._rows: deque[_Row] = deque()
        self._num_shown = 0
        self._num_settled = 0  # tokens that have no row any more

    def add(self, start: int, end: int, num_tokens: int, entry: TokenLogprob | None) -> None:
        self._rows.append(_Row(start, end, num_tokens, entry))

    def show(self, text: Text) -> list[Part]:
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
            Part(text.text[cuts[index] : cuts[index + 1]], num)
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

    def _note(self, row: _Row, text: Text) -> None:
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
