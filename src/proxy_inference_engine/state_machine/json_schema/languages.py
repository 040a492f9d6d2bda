"""Languages of regular expressions, by derivatives: membership, emptiness, intersection, complement, a pattern again.

A string s is read between two marks, so that anchors are characters like any other.
"""

from functools import lru_cache
from typing import Any

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
BEGIN, END = -1, -2

# ("no",) ("end",) ("set", ranges) ("cat", first, rest) ("or" or "and", frozenset) ("star", term) ("not", term)
NO: Term = ("no",)
NOTHING: Term = ("end",)
ANY: Term = ("set", ((0, MAX_CODE),))
ANYTHING: Term = ("star", ANY)
ALL: Term = ("not", NO)
LAST: Term = ("set", ((END, END),))
FIRST: Term = ("set", ((BEGIN, BEGIN),))
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


def _derived(term: Any, code: int) -> Term:
    """What may follow the character."""
    kind = term[0]
    if kind in {"no", "end"}:
        return NO
    if kind == "set":
        return NOTHING if any(low <= code <= high for low, high in term[1]) else NO
    if kind == "star":
        return _cat(_derived(term[1], code), term)
    if kind == "not":
        return _not(_derived(term[1], code))
    if kind == "cat":
        first = _cat(_derived(term[1], code), term[2])
        return _join("or", [first, _derived(term[2], code)]) if _is_nullable(term[1]) else first
    return _join(kind, [_derived(part, code) for part in term[1]])


def _built(term: Any, after: Term) -> Term:
    """The words of a term as read from a pattern, each followed by one of what comes after it."""
    kind = term[0]
    if kind == "set":
        return _cat(term, after)
    if kind == "^":
        return _cat(FIRST, after)
    if kind == "$":
        return _join("and", [LAST, after])
    if kind == "cat":
        for part in reversed(term[1]):
            after = _built(part, after)
        return after
    if kind == "or":
        return _join("or", [_built(part, after) for part in term[1]])
    if kind == "look":
        ahead = _built(term[2], ALL)
        return _join("and", [ahead if term[1] else _not(ahead), after])
    return _repeated(term, after)


def _repeated(term: Any, after: Term) -> Term:
    _, inner, least, most = term
    once = _built(inner, NOTHING)
    if has_assertions(inner):
        raise RegexError("an assertion is repeated")
    if max(least, most or 0) * max(1, _size(once)) > MAX_REPEAT:
        raise RegexError("a repetition is too long")
    result = _cat(("star", once), after) if most is None else after
    for _ in range((most or 0) - least):
        result = _join("or", [after, _cat(once, result)])
    for _ in range(least):
        result = _cat(once, result)
    return result


def _size(term: Any) -> int:
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


def _representatives(term: Any) -> list[tuple[int, tuple[tuple[int, int], ...]]]:
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
    for low, following in zip(cuts, [*cuts[1:], MAX_CODE + 1], strict=True):
        if low <= MAX_CODE:
            key = frozenset(ranges for ranges in sets if any(a <= low <= b for a, b in ranges))
            groups.setdefault(key, []).append((low, following - 1))
    return [(ranges[0][0], merged(ranges)) for ranges in groups.values()]


class Language:
    """A set of strings."""

    def __init__(self, term: Term) -> None:
        self._term = term

    def contains(self, text: str) -> bool:
        term = self._term
        for char in text[:MAX_REPEAT]:
            term = _derived(term, ord(char))
        if len(text) > MAX_REPEAT or _size(term) > MAX_TERM:
            raise RegexError("the text is too long")
        return _is_nullable(_derived(term, END))

    def and_(self, other: "Language") -> "Language":
        return Language(_join("and", [self._term, other._term]))

    def complement(self) -> "Language":
        return Language(_join("and", [_not(self._term), TEXT]))

    def with_length(self, least: int, most: float | None) -> "Language":
        """Strings of some length alone; bounds that are too wide to reason about are left out."""
        if max(least, most or 0) > MAX_REPEAT or (not least and most is None):
            return self
        bounds = ("rep", ANY, least, None if most is None else int(most))
        return Language(_join("and", [self._term, _built(bounds, LAST)]))

    def is_empty(self) -> bool:
        return not any(self._automaton(MAX_STATES).accepting)

    def pattern(self) -> str:
        """An anchored pattern of the same language, without lookaheads."""
        return "^" + self._automaton(MAX_STATES_IN_TEXT).text() + "$"

    def _automaton(self, max_states: int) -> "_Automaton":
        moves = _representatives(self._term)
        numbers = {self._term: 0}
        states = [self._term]
        edges: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for number, term in enumerate(states):
            for code, ranges in moves:
                following = _derived(term, code)
                if following == NO:
                    continue
                if following not in numbers:
                    if len(states) >= max_states or _size(following) > MAX_TERM:
                        raise RegexError("it is too complex")
                    numbers[following] = len(states)
                    states.append(following)
                edges.setdefault((number, numbers[following]), []).extend(ranges)
        return _Automaton([_is_nullable(_derived(term, END)) for term in states], edges)


class _Automaton:
    """States by number, the first one the start, and the characters that lead from one to another."""

    def __init__(self, accepting: list[bool], edges: dict[tuple[int, int], list[tuple[int, int]]]) -> None:
        self.accepting = accepting
        self._edges = edges

    def text(self) -> str:
        """The pattern that is left when state after state is taken out."""
        start, end = -1, len(self.accepting)
        texts = {pair: as_set_text(merged(ranges)) for pair, ranges in self._edges.items()}
        texts[start, 0] = ""
        texts |= {(number, end): "" for number, is_last in enumerate(self.accepting) if is_last}
        for number in reversed(range(end)):
            loop = texts.pop((number, number), None)
            into = [(pair[0], text) for pair, text in texts.items() if pair[1] == number]
            out = [(pair[1], text) for pair, text in texts.items() if pair[0] == number]
            for pair in [pair for pair in texts if number in pair]:
                del texts[pair]
            again = f"(?:{loop})*" if loop else ""
            for source, before in into:
                for target, after in out:
                    way = before + again + after
                    known = texts.get((source, target))
                    texts[source, target] = way if known is None else f"(?:{known}|{way})"
            if sum(map(len, texts.values())) > MAX_TEXT:
                raise RegexError("it is too complex")
        if (start, end) not in texts:
            raise RegexError("no string is left")
        return texts[start, end]


@lru_cache(maxsize=512)
def language_of(pattern: str) -> Language:
    """The strings in which a pattern is found; raises RegexError."""
    term = read(pattern)
    found = _built(term, TEXT)
    whole = _join("or", [found, _cat(FIRST, _cat(ANYTHING, found))])
    if _size(whole) > MAX_TERM:
        raise RegexError("it is too complex")
    return Language(_derived(whole, BEGIN))


@lru_cache(maxsize=512)
def do_meet(left: str, right: str) -> bool:
    """Whether some string has both patterns in it; raises RegexError where that cannot be told."""
    return not language_of(left).and_(language_of(right)).is_empty()


@lru_cache(maxsize=512)
def complement_of(pattern: str) -> str | None:
    """A pattern for all strings without the pattern, None where there are none; raises RegexError."""
    others = language_of(pattern).complement()
    return None if others.is_empty() else others.pattern()


@lru_cache(maxsize=512)
def is_universal(pattern: str) -> bool:
    """Whether it is certain that every string has the pattern in it."""
    try:
        return language_of(pattern).complement().is_empty()
    except RegexError:
        return False


def literal_complement(words: list[str]) -> str:
    """A pattern for all strings but these, by the tree of their prefixes."""
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for char in word:
            node = node.setdefault(char, {})
        node[""] = True
    return "^" + _outside(tree) + "$"


def _outside(node: dict[str, Any]) -> str:
    chars = sorted(char for char in node if char)
    others = complement(merged((ord(char), ord(char)) for char in chars))
    options = [as_set_text(others) + r"[\s\S]*"]
    options += [as_set_text(((ord(char), ord(char)),)) + _outside(node[char]) for char in chars]
    return "(?:" + "|".join(options) + (")" if "" in node else ")?")
