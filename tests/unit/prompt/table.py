"""A tokenizer small enough to check by eye: the longest piece of a table at each place, else one character."""

import re

SPECIALS = {
    "<s>": 1,
    "</s>": 2,
    "<|im_start|>": 3,
    "<|im_end|>": 4,
    "<|im|>": 5,
    "<think>": 6,
    "</think>": 7,
    "\n\n": 8,
}
PIECES = {"user\n": 100, "\nHello": 101, "Hello": 102, "n\n": 103, "assistant": 104, "!!": 105}
_FIRST_CHARACTER = 1000


class TableTokenizer:
    num_tokens = _FIRST_CHARACTER + 0x110000
    control_ids = frozenset(SPECIALS.values())

    def __init__(self, bos_id: int | None = None, end_ids: frozenset[int] = frozenset({2, 4})) -> None:
        self.bos_id = bos_id
        self.end_ids = end_ids
        self.specials = dict(SPECIALS)

    def encode(self, text: str) -> list[int]:
        pieces = sorted(map(re.escape, PIECES), key=len, reverse=True)
        found = re.findall("|".join([*pieces, "(?s:.)"]), text)
        return [PIECES.get(piece) or _FIRST_CHARACTER + ord(piece) for piece in found]

    def token_bytes(self, token_id: int) -> bytes:
        return self.text([token_id]).encode()

    def text(self, ids: list[int] | tuple[int, ...]) -> str:
        names = {token_id: text for text, token_id in (PIECES | SPECIALS).items()}
        return "".join(names.get(each) or chr(each - _FIRST_CHARACTER) for each in ids)

    def encode_whole(self, text: str) -> tuple[int, ...]:
        """The reference: every special token found anywhere, as a tokenizer with specials on does."""
        specials = {name: each for name, each in SPECIALS.items() if name.strip()}
        pattern = "|".join(map(re.escape, sorted(specials, key=len, reverse=True)))
        ids: list[int] = []
        for part in re.split(f"({pattern})", text):
            ids += [specials[part]] if part in specials else self.encode(part)
        return tuple(ids)
