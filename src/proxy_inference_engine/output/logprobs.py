"""Log-probabilities beside the text: each token's entry leaves with the token's last visible character."""

from collections import deque
from typing import NamedTuple

from proxy_inference_engine.output.events import TokenLogprob, TopLogprob
from proxy_inference_engine.runners.base import Tokenizer
from proxy_inference_engine.types import Logprob


def spell(logprob: Logprob, tokenizer: Tokenizer) -> TokenLogprob:
    """Write the tokens of an entry out as text and bytes."""
    piece = tokenizer.token_bytes(logprob.token_id)
    top = tuple(_spell_top(token_id, value, tokenizer) for token_id, value in logprob.top)
    text = piece.decode("utf-8", "replace")
    return TokenLogprob(text, logprob.logprob, piece, top, logprob.token_id, logprob.is_forced)


def _spell_top(token_id: int, value: float, tokenizer: Tokenizer) -> TopLogprob:
    piece = tokenizer.token_bytes(token_id)
    return TopLogprob(piece.decode("utf-8", "replace"), value, piece, token_id)


class _Waiting(NamedTuple):
    start: int  # the token's characters in the whole text
    end: int
    entry: TokenLogprob


class LogprobQueue:
    """Entries of tokens whose text is still held back, in order."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()

    def add(self, start: int, end: int, entry: TokenLogprob) -> None:
        self._waiting.append(_Waiting(start, end, entry))

    def take(self, num_chars: int) -> tuple[TokenLogprob, ...]:
        """The entries of tokens that lie wholly within the first `num_chars` characters."""
        taken = []
        while self._waiting and self._waiting[0].end <= num_chars:
            taken.append(self._waiting.popleft().entry)
        return tuple(taken)

    def finish(self, num_chars: int | None = None) -> tuple[TokenLogprob, ...]:
        """All that is left; of a text cut after `num_chars`, the tokens with at least one character before the cut."""
        waiting, self._waiting = self._waiting, deque()
        return tuple(item.entry for item in waiting if num_chars is None or item.start < num_chars)
