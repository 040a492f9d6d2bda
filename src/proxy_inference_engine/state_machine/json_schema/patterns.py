"""Questions about patterns, each asked for a price: which texts have a pattern, which patterns exclude each other.

Answers are kept over all schemas. To each schema a kept one has the same price, or it would end otherwise next time.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.json_schema.budget import Spend, StepBudget
from proxy_inference_engine.state_machine.json_schema.languages import (
    MAX_TERM,
    RegularLanguage,
    derived,
    is_last,
    language_of,
    size_of,
)
from proxy_inference_engine.state_machine.json_schema.regexes import MAX_REPEAT, RegexError, Term

_ASKING = 64  # parts of terms: what any question costs, for the reading of its patterns


class _Answer(NamedTuple):
    """`error`: why it cannot be told."""

    value: Any
    error: str | None
    work: int


def _answer(ask: Callable[[Spend], Any]) -> _Answer:
    work = 0

    def count(parts: int) -> None:
        nonlocal work
        work += parts

    try:
        value = ask(count)
    except RegexError as error:
        return _Answer(None, str(error), work)
    return _Answer(value, None, work)


def _told(answer: _Answer, budget: StepBudget, *question: str) -> Any:
    budget.ask(question, answer.work + _ASKING)
    if answer.error is not None:
        raise RegexError(answer.error)
    return answer.value


@lru_cache(maxsize=512)
def _meeting(left: str, right: str) -> _Answer:
    return _answer(lambda spend: not language_of(left).and_(language_of(right)).is_empty(spend))


@lru_cache(maxsize=512)
def _complement(pattern: str) -> _Answer:
    def ask(spend: Spend) -> str | None:
        others = language_of(pattern).complement()
        return None if others.is_empty(spend) else others.pattern(spend)

    return _answer(ask)


@lru_cache(maxsize=512)
def _universality(pattern: str) -> _Answer:
    return _answer(lambda spend: language_of(pattern).complement().is_empty(spend))


def do_meet(left: str, right: str, budget: StepBudget) -> bool:
    """Whether some string has both patterns in it; raises RegexError where that cannot be told."""
    return bool(_told(_meeting(left, right), budget, "meeting", left, right))


def complement_of(pattern: str, budget: StepBudget) -> str | None:
    """A pattern for all strings without the pattern, None where there are none; raises RegexError."""
    found: str | None = _told(_complement(pattern), budget, "complement", pattern)
    return found


def is_universal(pattern: str, budget: StepBudget) -> bool:
    """Whether it is certain that every string has the pattern in it."""
    try:
        return bool(_told(_universality(pattern), budget, "universality", pattern))
    except RegexError:
        return False


class Membership:
    """Which texts a language has. Asked for many of them, so what may follow a character is worked out once."""

    def __init__(self, language: RegularLanguage) -> None:
        self._terms = [language.term]
        self._numbers: dict[Term, int] = {language.term: 0}
        self._steps: dict[tuple[int, int], int] = {}
        self._ends: dict[int, bool] = {}

    def contains(self, text: str, spend: Spend) -> bool:
        """Raises RegexError where that cannot be told."""
        if len(text) > MAX_REPEAT:
            raise RegexError("the text is too long")
        state = 0
        spend(1 + len(text) // 8)
        for char in text:
            following = self._steps.get((state, ord(char)))
            state = self._step(state, ord(char), spend) if following is None else following
        if state not in self._ends:
            spend(size_of(self._terms[state]))
            self._ends[state] = is_last(self._terms[state])
        return self._ends[state]

    def _step(self, state: int, code: int, spend: Spend) -> int:
        spend(size_of(self._terms[state]))
        following = derived(self._terms[state], code)
        if size_of(following) > MAX_TERM:
            raise RegexError("the text is too long")
        number = self._numbers.setdefault(following, len(self._terms))
        if number == len(self._terms):
            self._terms.append(following)
        self._steps[state, code] = number
        return number
