"""Languages of regular expressions, by derivatives: emptiness, intersection, complement, a pattern again.

A string is read with a mark at its end, so that an anchor there is a character like any other; which parts of a
pattern stand at its beginning is known when their term is made. What looking at terms costs is told to whoever asks, in
parts of terms, before it is done.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from proxy_inference_engine.state_machine.json_schema.budget import Spend
from proxy_inference_engine.state_machine.json_schema.regexes import (
    MAX_CODE,
    MAX_REPEAT,
    RegexError,
    Term,
    as_set_text,
    complement,
    has_assertions,
    merged,
    read,
)

MAX_STATES = 150
MAX_STATES_IN_TEXT = 40
MAX_TEXT = 20_000
MAX_TERM = 1_500
# Parts of terms that one question may look at: about a quarter of a second.
MAX_WORK = 60_000
_TOO_COMPLEX = "it is too complex"
END = -2

# ("no",) ("end",) ("set", ranges) ("cat", first, rest) ("or" or "and", frozenset) ("star", term) ("not", term)
NO: Term = ("no",)
NOTHING: Term = ("end",)
ANY: Term = ("set", ((0, MAX_CODE),))
ANYTHING: Term = ("star", ANY)
ALL: Term = ("not", NO)
LAST: Term = ("set", ((END, END),))
TEXT: Term = ("cat", ANYTHING, LAST)


def _cat(first: Any, rest: Any) -> Term:
    if NO in (first, rest):
        return NO
    if first == NOTHING:
        return rest  # type: ignore[no-any-return]
    if rest == NOTHING:
        return first  # type: ignore[no-any-return]
    if first[0] == "cat":
        return ("cat", first[1], _cat(first[2], rest))
    return ("cat", first, rest)


def _join(name: str, terms: list[Any]) -> Term:
    """A union or an intersection, flat and without repetition."""
    neutral, absorbing = (NO, ALL) if name == "or" else (ALL, NO)
    parts: set[Term] = set()
    for term in terms:
        parts |= term[1] if term[0] == name else {term}
    parts.discard(neutral)
    if absorbing in parts:
        return absorbing
    if name == "and" and TEXT in parts and len(parts) > 1 and all(_is_text(part) for part in parts):
        parts.discard(TEXT)
    if not parts:
        return neutral
    return next(iter(parts)) if len(parts) == 1 else (name, frozenset(parts))


def _is_text(term: Any) -> bool:
    """Whether every word of the term surely is characters and then the end mark; only plain shapes are seen."""
    if term[0] == "cat":
        return _has_no_mark(term[1]) and (term[2] == LAST or _is_text(term[2]))
    return bool(term == LAST)


def _has_no_mark(term: Any) -> bool:
    if term[0] == "set":
        return all(low >= 0 for low, _ in term[1])
    return term[0] == "star" and _has_no_mark(term[1])


def _not(term: Any) -> Term:
    return term[1] if term[0] == "not" else ("not", term)


def _is_nullable(term: Any) -> bool:
    kind = term[0]
    if kind in {"no", "set"}:
        return False
    if kind in {"end", "star"}:
        return True
    if kind == "cat":
        return _is_nullable(term[1]) and _is_nullable(term[2])
    if kind == "not":
        return not _is_nullable(term[1])
    return (any if kind == "or" else all)(_is_nullable(part) for part in term[1])


def derived(term: Any, code: int) -> Term:
    """The rest of those words of a term that begin with a character: its derivative."""
    kind = term[0]
    if kind in {"no", "end"}:
        return NO
    if kind == "set":
        return NOTHING if any(low <= code <= high for low, high in term[1]) else NO
    if kind == "star":
        return _cat(derived(term[1], code), term)
    if kind == "not":
        return _not(derived(term[1], code))
    if kind == "cat":
        first = _cat(derived(term[1], code), term[2])
        return _join("or", [first, derived(term[2], code)]) if _is_nullable(term[1]) else first
    return _join(kind, [derived(part, code) for part in term[1]])


def is_last(term: Any) -> bool:
    """Whether a text may end here."""
    return _is_nullable(derived(term, END))


def _built(term: Any, after: Term, is_begun: bool | None = False) -> Term:
    """The words of a term as read from a pattern, each followed by one of what comes after it.

    `is_begun`: whether the term stands at the beginning of the text; None where it may or may not.
    """
    kind = term[0]
    if kind == "set":
        return _cat(term, after)
    if kind == "^":
        if is_begun is None:
            raise RegexError("an anchor may or may not stand at the beginning")
        return after if is_begun else NO
    if kind == "$":
        return _join("and", [LAST, after])
    if kind == "cat":
        for part, flag in reversed(list(zip(term[1], _beginnings(term[1], is_begun), strict=True))):
            after = _built(part, after, flag)
        return after
    if kind == "or":
        return _join("or", [_built(part, after, is_begun) for part in term[1]])
    if kind == "look":
        ahead = _built(term[2], ALL, is_begun)
        return _join("and", [ahead if term[1] else _not(ahead), after])
    return _repeated(term, after)


def _beginnings(parts: Any, is_begun: bool | None) -> Iterator[bool | None]:
    """Whether each of some parts in a row stands at the beginning of the text."""
    for part in parts:
        yield is_begun
        if is_begun is not False and part[0] not in {"^", "$", "look"}:
            is_begun = None if has_assertions(part) or _is_nullable(_built(part, NOTHING)) else False


def _weight(term: Any) -> int:
    """How many character sets there are in a pattern once its repetitions are written out."""
    if term[0] in {"cat", "or"}:
        return sum(map(_weight, term[1]))
    if term[0] == "rep":
        count: int = max(1, term[2], term[3] or 0)
        return count * _weight(term[1])
    return _weight(term[2]) if term[0] == "look" else 1


def _repeated(term: Any, after: Term) -> Term:
    _, inner, least, most = term
    once = _built(inner, NOTHING)
    if has_assertions(inner):
        raise RegexError("an assertion is repeated")
    if max(least, most or 0) * max(1, size_of(once)) > MAX_REPEAT:
        raise RegexError("a repetition is too long")
    result = _cat(("star", once), after) if most is None else after
    for _ in range((most or 0) - least):
        result = _join("or", [after, _cat(once, result)])
    for _ in range(least):
        result = _cat(once, result)
    return result


def size_of(term: Any) -> int:
    """How many parts a term has; not counted beyond what is too many."""
    size = 0
    stack = [term]
    while stack and size <= MAX_TERM:
        part = stack.pop()
        size += 1
        if part[0] in {"or", "and"}:
            stack += part[1]
        elif part[0] in {"cat", "star", "not"}:
            stack += part[1:]
    return size


def _representatives(term: Any, spend: Spend) -> list[tuple[int, tuple[tuple[int, int], ...]]]:
    """One character for each set of characters that the term cannot tell apart, and that set."""
    sets: set[Any] = set()
    stack = [term]
    while stack:
        part = stack.pop()
        if part[0] == "set":
            sets.add(part[1])
        elif part[0] in {"or", "and"}:
            stack += part[1]
        elif part[0] in {"cat", "star", "not"}:
            stack += part[1:]
    cuts = sorted({0, *(cut for ranges in sets for low, high in ranges for cut in (low, high + 1) if cut > 0)})
    groups: dict[Any, list[tuple[int, int]]] = {}
    spend(len(cuts) * len(sets))
    for low, following in zip(cuts, [*cuts[1:], MAX_CODE + 1], strict=True):
        if low <= MAX_CODE:
            key = frozenset(ranges for ranges in sets if any(a <= low <= b for a, b in ranges))
            groups.setdefault(key, []).append((low, following - 1))
    return [(ranges[0][0], merged(ranges)) for ranges in groups.values()]


class RegularLanguage:
    """A set of strings that a regular expression describes."""

    def __init__(self, term: Term) -> None:
        self.term = term

    def and_(self, other: "RegularLanguage") -> "RegularLanguage":
        return RegularLanguage(_join("and", [self.term, other.term]))

    def complement(self) -> "RegularLanguage":
        return RegularLanguage(_join("and", [_not(self.term), TEXT]))

    def with_length(self, least: int, most: int | None) -> "RegularLanguage":
        """Strings of some length alone; bounds that are too wide to reason about are left out."""
        if max(least, most or 0) > MAX_REPEAT or (not least and most is None):
            return self
        bounds = ("rep", ANY, least, most)
        return RegularLanguage(_join("and", [self.term, _built(bounds, LAST)]))

    def is_empty(self, spend: Spend) -> bool:
        return not any(self._automaton(MAX_STATES, spend).accepting)

    def pattern(self, spend: Spend) -> str:
        """An anchored pattern of the same language, without lookaheads."""
        return "^" + self._automaton(MAX_STATES_IN_TEXT, spend).text() + "$"

    def automaton(self, spend: Spend) -> tuple[list[bool], dict[tuple[int, int], list[tuple[int, int]]]]:
        """Which states are last ones, the first being the start, and the characters that lead from one to another."""
        found = self._automaton(MAX_STATES, spend)
        return found.accepting, found.edges

    def _automaton(self, max_states: int, spend: Spend) -> "_Automaton":
        moves = _representatives(self.term, spend)
        numbers = {self.term: 0}
        states = [self.term]
        edges: dict[tuple[int, int], list[tuple[int, int]]] = {}
        work = 0
        for number, term in enumerate(states):
            least = 1 + size_of(term) // 8
            for code, ranges in moves:
                following = derived(term, code)
                size = 0 if following == NO else size_of(following)
                work += least + size
                spend(least + size)
                if work > MAX_WORK:
                    raise RegexError(_TOO_COMPLEX)
                if not size:
                    continue
                if following not in numbers:
                    if len(states) >= max_states or size > MAX_TERM:
                        raise RegexError(_TOO_COMPLEX)
                    numbers[following] = len(states)
                    states.append(following)
                edges.setdefault((number, numbers[following]), []).extend(ranges)
        return _Automaton([is_last(term) for term in states], edges)


class _Automaton:
    """States by number, the first one the start, and the characters that lead from one to another."""

    def __init__(self, accepting: list[bool], edges: dict[tuple[int, int], list[tuple[int, int]]]) -> None:
        self.accepting = accepting
        self.edges = edges

    def text(self) -> str:
        """The pattern that is left when state after state is taken out."""
        start, end = -1, len(self.accepting)
        texts = {pair: as_set_text(merged(ranges)) for pair, ranges in self.edges.items()}
        texts[start, 0] = ""
        texts |= {(number, end): "" for number, is_last in enumerate(self.accepting) if is_last}
        for number in reversed(range(end)):
            loop = texts.pop((number, number), None)
            into = [(pair[0], text) for pair, text in texts.items() if pair[1] == number]
            out = [(pair[1], text) for pair, text in texts.items() if pair[0] == number]
            for pair in [pair for pair in texts if number in pair]:
                del texts[pair]
            again = f"(?:{loop})*" if loop else ""
            num_chars = 0
            for source, before in into:
                for target, after in out:
                    way = before + again + after
                    known = texts.get((source, target))
                    texts[source, target] = way if known is None else f"(?:{known}|{way})"
                    num_chars += len(texts[source, target])
                    if num_chars > MAX_TEXT:
                        raise RegexError(_TOO_COMPLEX)
            if sum(map(len, texts.values())) > MAX_TEXT:
                raise RegexError(_TOO_COMPLEX)
        if (start, end) not in texts:
            raise RegexError("no string is left")
        return texts[start, end]


@lru_cache(maxsize=512)
def language_of(pattern: str) -> RegularLanguage:
    """The strings in which a pattern is found; raises RegexError."""
    term = read(pattern)
    if _weight(term) > MAX_TERM:
        raise RegexError(_TOO_COMPLEX)
    whole = _join("or", [_built(term, TEXT, True), _cat(ANY, _cat(ANYTHING, _built(term, TEXT)))])
    if size_of(whole) > MAX_TERM:
        raise RegexError(_TOO_COMPLEX)
    return RegularLanguage(whole)


def literal_complement(words: list[str], spend: Spend) -> str:
    """A pattern for all strings but these, by the tree of their prefixes."""
    tree: dict[str, Any] = {}
    for word in words:
        spend(4 + 4 * len(word))
        node = tree
        for char in word:
            node = node.setdefault(char, {})
        node[""] = True
    parts: list[str] = []
    _write_outside(tree, parts, spend)
    return "^" + "".join(parts) + "$"


def _write_outside(node: dict[str, Any], parts: list[str], spend: Spend) -> None:
    spend(8)
    chars = sorted(char for char in node if char)
    others = complement(merged((ord(char), ord(char)) for char in chars))
    parts.append("(?:" + as_set_text(others) + r"[\s\S]*")
    for char in chars:
        parts.append("|" + as_set_text(((ord(char), ord(char)),)))
        _write_outside(node[char], parts, spend)
    parts.append(")" if "" in node else ")?")
