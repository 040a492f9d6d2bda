"""The vocabulary of a GGUF model: text to ids without ever making a control token, and ids to bytes."""

import ctypes
import re
from typing import NamedTuple

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.llama_cpp.binding import llama_token
from proxy_inference_engine.runners.llama_cpp.model import Model

_CONTROL = 1 << 3
_USER_DEFINED = 1 << 4
_UNKNOWN = 1 << 0
_NONE = ("none", "no_vocab")


class TextFrame(NamedTuple):
    """The tokens that a model wants before a text, between two texts of a pair, and at the end."""

    prefix: tuple[int, ...]
    middle: tuple[int, ...]
    suffix: tuple[int, ...]


class Vocabulary:
    """Implements `Tokenizer`. Safe from any thread: llama.cpp only reads here."""

    def __init__(self, model: Model) -> None:
        """Raises StartupError for a model without one: llama.cpp would end the process when asked for a token."""
        if model.metadata("tokenizer.ggml.model") in _NONE:
            raise StartupError(f"cannot load {model.path.name!r}: it has no vocabulary")
        self._llama = model.llama
        self._vocab = model.vocab
        self.num_tokens = int(self._llama.llama_vocab_n_tokens(self._vocab))
        self._bytes: list[bytes | None] = [None] * self.num_tokens
        attributes = [self._llama.llama_vocab_get_attr(self._vocab, i) for i in range(self.num_tokens)]
        special = [i for i, bits in enumerate(attributes) if bits & (_CONTROL | _USER_DEFINED | _UNKNOWN)]
        self.control_ids = frozenset(i for i in special if attributes[i] & (_CONTROL | _UNKNOWN))
        self.specials = {self.token_bytes(i).decode(errors="replace"): i for i in special}
        self.end_ids = frozenset(i for i in range(self.num_tokens) if self._llama.llama_vocab_is_eog(self._vocab, i))
        bos_id = int(self._llama.llama_vocab_bos(self._vocab))
        self.bos_id = bos_id if bos_id >= 0 and self._llama.llama_vocab_get_add_bos(self._vocab) else None
        # llama.cpp finds user-defined tokens even in plain text, so such a text is cut after its first character.
        # Runs of white space that a vocabulary defines as tokens are no markers and stay whole.
        defined = [text for text, i in self.specials.items() if i not in self.control_ids and len(text.strip()) > 1]
        pattern = "|".join(re.escape(text) for text in sorted(defined, key=len, reverse=True))
        self._defined = re.compile(pattern) if pattern else None

    def encode(self, text: str) -> list[int]:
        if self._defined is None or not self._defined.search(text):
            return self._encode(text)
        ids: list[int] = []
        start = 0
        for match in self._defined.finditer(text):
            ids += self._encode(text[start : match.start() + 1])
            start = match.start() + 1
        return ids + self._encode(text[start:])

    def frame(self) -> TextFrame:
        """Read off what llama.cpp puts around a word."""
        plain, framed = self._encode("a"), self._encode("a", is_framed=True)
        start = next((at for at in range(len(framed)) if framed[at : at + len(plain)] == plain), 0)
        prefix, suffix = tuple(framed[:start]), tuple(framed[start + len(plain) :])
        # Where a text ends with a separator already, one stands between the two of a pair; else one may be added.
        separator = int(self._llama.llama_vocab_sep(self._vocab))
        has_more = self._llama.llama_vocab_get_add_sep(self._vocab) and separator >= 0
        has_more = has_more and (self._llama.llama_vocab_get_add_eos(self._vocab) or not suffix)
        return TextFrame(prefix, (*suffix, separator) if has_more else suffix, suffix)

    def _encode(self, text: str, *, is_framed: bool = False) -> list[int]:
        data = text.encode()
        size = len(data) + 8
        while True:
            buffer = (llama_token * size)()
            count = self._llama.llama_tokenize(self._vocab, data, len(data), buffer, size, is_framed, False)
            if count >= 0:
                return buffer[:count]
            size = -count

    def token_bytes(self, token_id: int) -> bytes:
        known = self._bytes[token_id]
        if known is None:
            known = self._bytes[token_id] = self._piece(token_id)
        return known

    def _piece(self, token_id: int) -> bytes:
        buffer = ctypes.create_string_buffer(64)
        length = self._llama.llama_token_to_piece(self._vocab, token_id, buffer, len(buffer), 0, True)
        if length < 0:
            buffer = ctypes.create_string_buffer(-length)
            length = self._llama.llama_token_to_piece(self._vocab, token_id, buffer, len(buffer), 0, True)
        return buffer.raw[: max(0, length)]
