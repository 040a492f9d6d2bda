"""The reasoning about patterns against Python's own regular expressions."""

import re
from itertools import product

import pytest

from proxy_inference_engine.state_machine.json_schema.budget import OutOfSteps, StepBudget
from proxy_inference_engine.state_machine.json_schema.languages import RegularLanguage, language_of, literal_complement
from proxy_inference_engine.state_machine.json_schema.patterns import Membership, complement_of, do_meet, is_universal
from proxy_inference_engine.state_machine.json_schema.regexes import MalformedRegex, RegexError, read

# All short words over a few characters: letters, a digit, a dash, something that is no letter at all.
WORDS = ["".join(word) for length in range(4) for word in product("ab1-é", repeat=length)]

PATTERNS = [
    "",
    "a",
    "^a",
    "a$",
    "^a$",
    "^$",
    "^(a|b)*$",
    "^[ab]+1?$",
    "^[^a]*$",
    "^[^ab1]",
    r"^\w+$",
    r"^\W",
    r"\d",
    r"^\D*$",
    r"\s|1",
    "^a{2}$",
    "^a{1,2}b{0,1}$",
    "^(ab){1,}$",
    "^a|b$",
    "(^|b)1($|a)",
    "^(?:a|(b(1|-)))+$",
    "^(?!a)",
    "^(?!.*1)",
    "^(?=.*a)(?=.*b)",
    "^(?=a)b",
    "a(?!b)",
    "^((?!ab).)*$",
    "[-a]",
    "[a-]b",
    r"\x61",
    r"\u0062$",
    r"[\w-]{2}",
    "^.{2,3}$",
    "a+?b",
    "(?<name>a)b",
    "a^b",
    "a$b",
    "^(?!^a)",
    "^(?=^a)(?!^.b)",
    "^(?=(^|b)1)",
    "^(?!a|^b)",
    "(?!^a)b",
    "(?=^|a)1",
    "(^|a)^b",
    "^a(?!^b)",
    "^(^a|b)+$",
]

# Refused: an assertion that is repeated, and an anchor that stands at the beginning of some words and not of others.
UNREAD = {"^((?!ab).)*$", "^(^a|b)+$", "(^|a)^b"}


def is_found(pattern: str, word: str) -> bool:
    # Python's $ also matches before a last line break, and its classes know more than ASCII: neither is ECMA-262.
    python = re.sub(r"\(\?<(\w+)>", r"(?P<\1>", pattern).replace("$", r"\Z")
    return re.search(python, word, re.ASCII) is not None


@pytest.mark.parametrize("pattern", PATTERNS)
def test_membership_and_complement(pattern: str) -> None:
    try:
        language = language_of(pattern)
    except RegexError as error:
        assert pattern in UNREAD, error
        return
    found = [is_found(pattern, word) for word in WORDS]
    assert members(language) == found
    assert members(language.complement()) == [not one for one in found]
    assert is_universal(pattern, StepBudget()) == (pattern == "")


def members(language: RegularLanguage) -> list[bool]:
    membership = Membership(language)
    return [membership.contains(word, StepBudget().think) for word in WORDS]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_written_anew_mean_the_same(pattern: str) -> None:
    try:
        language = language_of(pattern)
        others = complement_of(pattern, StepBudget())
    except RegexError:
        return
    found = [word for word in WORDS if is_found(pattern, word)]
    think = StepBudget().think
    if not language.is_empty(think):
        assert [word for word in WORDS if re.search(python_syntax(language.pattern(think)), word)] == found
    outside = [] if others is None else [word for word in WORDS if re.search(python_syntax(others), word)]
    assert outside == [word for word in WORDS if word not in found]


def python_syntax(pattern: str) -> str:
    pattern = pattern.removesuffix("$") + r"\Z"
    return re.sub(r"\\x\{([0-9A-F]+)\}", lambda match: f"\\U{int(match[1], 16):08x}", pattern)


@pytest.mark.parametrize(("left", "right"), list(product(PATTERNS[:20], repeat=2)))
def test_patterns_meet_where_a_word_has_both(left: str, right: str) -> None:
    has_both = any(is_found(left, word) and is_found(right, word) for word in WORDS)
    assert do_meet(left, right, StepBudget()) or not has_both
    if has_both:
        assert do_meet(left, right, StepBudget())


@pytest.mark.parametrize(
    "words", [["a"], [""], ["a", "ab", "abc"], ["", "é", "1-"], ["a-b", "]^"], ["\n", "\\", '"'], ["😀"]]
)
def test_everything_but_some_words(words: list[str]) -> None:
    pattern = python_syntax(literal_complement(words, StepBudget().think))
    candidates = [*WORDS, *words, *(word + "x" for word in words), *(word[:-1] for word in words)]
    assert all((re.search(pattern, word) is not None) == (word not in words) for word in candidates)


@pytest.mark.parametrize("pattern", ["(", ")", "a)", "*", "+a", "a|?", "[a", "[b-a]", "a{2,1}", "\\", "(a", "(?:a"])
def test_malformed(pattern: str) -> None:
    with pytest.raises(MalformedRegex):
        read(pattern)


@pytest.mark.parametrize(
    "pattern", [r"\bword\b", r"(a)\1", "(?<=a)b", "(?<!a)b", r"\p{L}", "a{999}", "(" * 30 + ")" * 30]
)
def test_beyond_reason(pattern: str) -> None:
    with pytest.raises(RegexError) as error:
        language_of(pattern)
    assert not isinstance(error.value, MalformedRegex)


SLOW = ["((((a?)?)?)?){1,60}", "(?:(?:(?:a*)*)*){1,40}", "(?:(?:(?:(?:(?:c)?|.))?)?){2,40}", "^(a|b)*a(a|b){12}$"]


@pytest.mark.parametrize("pattern", SLOW)
def test_whether_a_text_has_a_pattern_is_paid_for(pattern: str) -> None:
    """Each character of these takes milliseconds: a list of values that have to match one would take hours."""
    budget = StepBudget(2_000)
    membership = Membership(language_of(pattern))
    with pytest.raises((OutOfSteps, RegexError)):
        for number in range(10_000):
            membership.contains(f"{number:b}".replace("0", "a").replace("1", "b"), budget.think)


def test_a_question_costs_the_same_to_every_schema() -> None:
    first, second = StepBudget(), StepBudget()
    for budget in (first, second):
        do_meet("^(a|b)*c$", "^a{3}", budget)
    assert first.num_spent == second.num_spent > 0
    do_meet("^(a|b)*c$", "^a{3}", first)
    assert first.num_spent <= second.num_spent + 1, "asked again by the same schema, it is all but free"
