"""Prompts of known length that no server has seen: words at random from a seed, cut to a number of tokens."""

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_TEXT = (
    "the of and to in that was his with for had are not but from have they which one you were her all she there "
    "would their him been has when who will more out said what about other into than its time only could new them "
    "man some these then two first may any like now my such make over our even most state after also made many did "
    "must before back see through way where get much well your know should down work year because come people just "
    "say each those take day good how long river stone garden winter letter market bridge engine morning village "
    "teacher music forest copper window harbour paper mountain silver kitchen lantern journey"
)
_WORDS = _TEXT.split()


@dataclass(frozen=True, slots=True)
class Prompts:
    """Makes prompts; the same seed gives the same ones to every server."""

    encode: Callable[[str], Sequence[int]]  # text to token ids

    def text(self, seed: str, num_tokens: int) -> str:
        """Text of `num_tokens`; another seed gives another text from the first word or number on."""
        source = random.Random(seed)
        words = [
            source.choice(_WORDS).capitalize(),
            str(source.randrange(10**6)),
            *source.choices(_WORDS, k=num_tokens),
        ]
        end = bisect_right(range(len(words)), num_tokens, key=lambda end: len(self.encode(" ".join(words[:end])))) - 1
        text = " ".join(words[:end])
        return text + " a" * (num_tokens - len(self.encode(text)))
