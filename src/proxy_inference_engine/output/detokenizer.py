"""Token ids to text, one token at a time: never half a character. Knows nothing of stop strings or events.

The text is what `bytes.decode("utf-8", "replace")` gives over the bytes of all tokens together.
"""

import codecs

from proxy_inference_engine.runners.base import Tokenizer


class Detokenizer:
    """Holds back the bytes of an unfinished character.

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
