"""How many texts begin in one way, against all of them written out."""

import json
import re
from itertools import product

import pytest

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.languages import language_of
from proxy_inference_engine.state_machine.json_schema.text_counts import (
    AnyStrings,
    FewTexts,
    PatternStrings,
    WholeNumbers,
)
from proxy_inference_engine.state_machine.shapes import MANY, ItemTexts


def beginnings(texts: list[bytes]) -> set[bytes]:
    """Of all texts, but not whole strings: their ends are never asked for."""
    return {text[:end] for text in texts for end in range(len(text) + (text[:1] != b'"'))}


def check(counted: ItemTexts, texts: list[bytes]) -> None:
    for begun in beginnings(texts):
        assert counted.num_from(begun) == sum(text.startswith(begun) for text in texts), begun


@pytest.mark.parametrize(("least", "most"), [(0, 0), (-3, 12), (5, 250), (-120, -7), (1, 1), (-100, 100), (99, 1001)])
def test_whole_numbers(least: int, most: int) -> None:
    check(WholeNumbers(least, most), [str(number).encode() for number in range(least, most + 1)])
    assert WholeNumbers(least, most).num_from(b"-0") == 0


def test_whole_numbers_without_end() -> None:
    assert WholeNumbers().num_from(b"-") == WholeNumbers(7, None).num_from(b"1") == MANY
    assert WholeNumbers().num_from(b"0") == 1 and WholeNumbers(0, None).num_from(b"-") == 0
    assert WholeNumbers().num_from(b"9" * 10_000) == MANY


def test_few_texts() -> None:
    texts = [json.dumps(one, ensure_ascii=False).encode() for one in ("", "a", "ab", "é", "ê", 'a"', "a\n")]
    check(FewTexts(texts), texts)


@pytest.mark.parametrize("pattern", ["^[ab]{1,2}$", "^(a|é|ê\\n)[ab]?$", r'^["\\\n]{0,2}$', "^(?!ab)[abc]{2}$"])
def test_strings_of_a_pattern(pattern: str) -> None:
    language = language_of(pattern)
    words = ("".join(word) for length in range(4) for word in product('abcéê"\\\n', repeat=length))
    is_found = re.compile(pattern.replace("$", r"\Z")).search  # Python's $ matches before a last line break, too
    texts = [json.dumps(word, ensure_ascii=False).encode() for word in words if is_found(word)]
    assert texts
    check(PatternStrings(language, StepBudget().think), texts)


def test_strings_without_end() -> None:
    counted = PatternStrings(language_of("^a+b?$"), StepBudget().think)
    assert counted.num_from(b'"') == counted.num_from(b'"aa') == MANY and counted.num_from(b'"ab') == 1
    assert AnyStrings().num_from(b'"a') == MANY and AnyStrings(2).num_from(b'"a') == MANY
    assert AnyStrings(2).num_from(b'"ab') == 1 and AnyStrings(2).num_from(b'"a\\') == len(b'nrbtf"\\')
