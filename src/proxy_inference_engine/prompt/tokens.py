"""Rendered text to token ids: control tokens come from the template's own text, never from what a person wrote."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from proxy_inference_engine.runners.base import Eyes, Tokenizer


class Span(NamedTuple):
    """text[start:end]"""

    start: int
    end: int


class PromptEncoder:
    """Knows the special tokens of one vocabulary, and how images stand in a text. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, eyes: Eyes | None = None) -> None:
        self._tokenizer = tokenizer
        self._around = {} if eyes is None else {eyes.marker: (eyes.before, eyes.after)}
        # Some vocabularies list runs of spaces as special; they are text like any other.
        self._specials = {text: token_id for text, token_id in tokenizer.specials.items() if text.strip()}
        self._pattern = re.compile(_any_of(sorted(self._specials)) if self._specials else r"(?!)")

    def encode(self, text: str, contents: Sequence[Span]) -> tuple[int, ...]:
        """Ids of a rendered chat. Inside `contents` (ascending spans) nothing is special.

            <|im_start|>user\\nHello <|im_end|> there<|im_end|>\\n
            ┗ special  ┛┗ one run: merged as in training┛┗special┛

        What lies between two special tokens is encoded in one go, template and content together, and with what the
        model wants around an image where one of the two is its marker.
        """
        ids: list[int] = []
        run_start, opening = 0, ""
        for match in self._find(text, contents):
            before, after = self._around.get(match.group(), ("", ""))
            ids += self._encode_run(f"{opening}{text[run_start : match.start()]}{before}")
            ids.append(self._specials[match.group()])
            run_start, opening = match.end(), after
        ids += self._encode_run(opening + text[run_start:])
        return self._with_one_bos(ids)

    def encode_plain(self, text: str) -> tuple[int, ...]:
        """Ids of a text in which nothing is special."""
        return self._with_one_bos(self._encode_run(text))

    def special_ids(self, text: str, contents: Sequence[Span] = ()) -> list[int]:
        """Every special token that a text spells out, in order."""
        return [self._specials[match.group()] for match in self._find(text, contents)]

    def has_special(self, texts: Iterable[str]) -> bool:
        return any(self._pattern.search(text) for text in texts)

    def may_complete_special(self, text: str) -> bool:
        """Whether a text spells a special token, or could together with what stands next to it."""
        return self.has_special([text]) or any(
            text.endswith(special[:size]) or text.startswith(special[-size:])
            for special in self._specials
            for size in range(1, len(special))
        )

    def _find(self, text: str, contents: Sequence[Span]) -> Iterator[re.Match[str]]:
        start = 0
        for content in contents:
            yield from self._pattern.finditer(text, start, content.start)
            start = content.end
        yield from self._pattern.finditer(text, start)

    def _encode_run(self, text: str) -> list[int]:
        return self._tokenizer.encode(text) if text else []

    def _with_one_bos(self, ids: list[int]) -> tuple[int, ...]:
        bos_id = self._tokenizer.bos_id
        if bos_id is None:
            return tuple(ids)
        num_bos = next((index for index, token_id in enumerate(ids) if token_id != bos_id), len(ids))
        return (bos_id, *ids[num_bos:])


def _any_of(words: Sequence[str]) -> str:
    """A pattern for the longest of sorted words at a position; shared beginnings are tried once."""
    pairs = zip(words[0], words[-1], strict=False)
    size = next((index for index, (one, other) in enumerate(pairs) if one != other), len(words[0]))
    start, rest = words[0][:size], [word[size:] for word in words if len(word) > size]
    if not rest:
        return re.escape(start)
    branches = "|".join(_any_of(list(group)) for _, group in groupby(rest, key=lambda word: word[0]))
    return f"{re.escape(start)}(?:{branches}){'?' if len(rest) < len(words) else ''}"
