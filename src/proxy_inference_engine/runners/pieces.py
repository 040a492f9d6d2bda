"""The two ways in which tokenizer files write bytes as characters, and their steps made free of side effects."""

import re
from collections.abc import Iterator, Sequence
from functools import cache

from proxy_inference_engine.runners.checkpoint import Json

SPACE = "▁"  # stands for a space in vocabularies of pieces
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@cache
def byte_letters() -> dict[str, int]:
    """GPT-2's letters: printable Latin-1 stands for itself, the other bytes for what follows U+0100."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + index): byte for index, byte in enumerate(hidden)}


def is_byte_level(file: Json) -> bool:
    """Whether pieces are written in GPT-2's letters; otherwise with `▁` for a space and `<0xNN>` for a byte."""
    steps = (*_steps(file.get("decoder")), *_steps(file.get("pre_tokenizer")))
    return any(step.get("type") == "ByteLevel" for step in steps)


def piece_bytes(piece: str, *, is_byte_level: bool) -> bytes:
    if is_byte_level:
        letters = byte_letters()
        # A token that was put in by hand may be plain text.
        return bytes(letters[letter] for letter in piece) if letters.keys() >= set(piece) else piece.encode()
    match = _BYTE.fullmatch(piece)
    return bytes([int(match[1], 16)]) if match else piece.replace(SPACE, " ").encode()


def plain_steps(file: Json, added: Sequence[Json]) -> Json:
    """The tokenizer without all that changes a text's bytes, and with these added tokens only."""
    blanks = [{**entry, "lstrip": False, "rstrip": False, "single_word": False} for entry in added]
    plain = {**file, "added_tokens": blanks, "post_processor": None, "truncation": None, "padding": None}
    plain["model"] = {**file["model"], "dropout": None} if file["model"].get("type") == "BPE" else file["model"]
    plain["pre_tokenizer"] = _unprefixed(file.get("pre_tokenizer"))
    spaces = [step for step in _steps(file.get("normalizer")) if _makes_spaces(step)]
    plain["normalizer"] = spaces[0] if spaces else None
    return plain


def _steps(step: object) -> Iterator[Json]:
    """The single steps of a sequence of sequences."""
    if not isinstance(step, dict):
        return
    parts = [part for key in ("normalizers", "pretokenizers", "decoders", "processors") for part in step.get(key) or ()]
    if not parts:
        yield step
    for part in parts:
        yield from _steps(part)


def _makes_spaces(step: Json) -> bool:
    return step.get("type") == "Replace" and step.get("pattern") == {"String": " "} and step.get("content") == SPACE


def _unprefixed(step: Json | None) -> Json | None:
    """No space before the first word, which the text does not have."""
    if step is None:
        return None
    if "pretokenizers" in step:
        return {**step, "pretokenizers": [_unprefixed(part) for part in step["pretokenizers"]]}
    if step.get("type") == "Metaspace":
        return {key: value for key, value in step.items() if key != "add_prefix_space"} | {"prepend_scheme": "never"}
    return {**step, "add_prefix_space": False} if "add_prefix_space" in step else step
