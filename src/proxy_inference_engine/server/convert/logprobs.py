"""Log-probabilities in the two shapes of the wire: entries with bytes (chat), parallel lists with offsets (text)."""

from collections.abc import Sequence
from typing import Any

from proxy_inference_engine.output.events import TokenLogprob, TopLogprob

_LEAST = -9999.0  # JSON has no -inf; the format's own word for "very unlikely"


def finite(logprob: float) -> float:
    return logprob if logprob > _LEAST else _LEAST


def chat_logprobs(entries: Sequence[TokenLogprob]) -> dict[str, Any]:
    content = [{**_entry(entry), "top_logprobs": [_entry(top) for top in entry.top]} for entry in entries]
    return {"content": content, "refusal": None}


def _entry(entry: TokenLogprob | TopLogprob) -> dict[str, Any]:
    return {"token": entry.token, "logprob": finite(entry.logprob), "bytes": list(entry.bytes)}


class TextLogprobs:
    """The lists of one choice, piece by piece: offsets go on where the last piece ended."""

    def __init__(self) -> None:
        self._offset = 0

    def prompt(self, pieces: Sequence[tuple[bytes, bool]], entries: Sequence[TokenLogprob | None]) -> dict[str, Any]:
        """`pieces` are the prompt's tokens: bytes, and whether they are part of the text. The first has no entry."""
        lists = empty_lists()
        for (piece, is_text), entry in zip(pieces, entries, strict=True):
            self._add(lists, piece, is_text, entry)
        return lists

    def text(self, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        lists = empty_lists()
        for entry in entries:
            self._add(lists, entry.bytes, True, entry)
        return lists

    def _add(self, lists: dict[str, list[Any]], piece: bytes, is_text: bool, entry: TokenLogprob | None) -> None:
        lists["tokens"].append(_name(piece))
        lists["text_offset"].append(self._offset)
        lists["token_logprobs"].append(None if entry is None else finite(entry.logprob))
        lists["top_logprobs"].append(None if entry is None else _top(entry))
        if is_text:
            self._offset += sum((byte & 0xC0) != 0x80 for byte in piece)  # characters that begin in it


def extend_lists(lists: dict[str, Any], more: dict[str, Any]) -> None:
    for key, values in more.items():
        lists[key].extend(values)


def empty_lists() -> dict[str, list[Any]]:
    return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}


def _top(entry: TokenLogprob) -> dict[str, float]:
    """The likeliest tokens, and the chosen one even when it is not among them."""
    top = {_name(other.bytes): finite(other.logprob) for other in reversed(entry.top)}
    return {**top, _name(entry.bytes): finite(entry.logprob)}


def _name(piece: bytes) -> str:
    """A token as a key: half characters keep their bytes apart, as OpenAI writes them."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)
