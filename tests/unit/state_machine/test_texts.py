"""Clients' own grammars: regexes with and without anchors, Lark, lists of choices."""

import pytest

from proxy_inference_engine.interaction import TextGrammar
from proxy_inference_engine.state_machine.demand import Demand, InvalidDemand, ListedText
from tests.unit.state_machine.families import Family
from tests.unit.state_machine.vocabularies import start, verdict, walk

FAMILY = Family("chatml", has_tokens=True)


def _accepts(demand: Demand, text: str) -> bool:
    """The text letter by letter, so that nothing in it is a marker."""
    return walk(start(FAMILY.builder, demand), FAMILY.tokenizer.encode(text)) in ("ended", "complete")


@pytest.mark.parametrize(
    ("regex", "good", "bad"),
    [
        ("a+", ["a", "aaa"], ["", "b", "ab"]),
        ("^a+$", ["a", "aaa"], ["", "^a$", "ab"]),
        ("a|bc", ["a", "bc"], ["ac", "abc", "b"]),
        ("a/b", ["a/b"], ["ab", "a\\/b"]),
        (r"a\/b", ["a/b"], ["ab"]),
        ('"[^"]*"', ['""', '"x y"'], ['"', "x"]),
        (r"\d{3}-\w", ["123-a", "000-_"], ["12-a", "123-é", "٣٣٣-a"]),
        (r"\s", [" ", "\n"], ["", "a"]),
        ("[^a]", ["b", "é", "\n"], ["a", ""]),
        (".", ["a", "é", "😀"], ["\n", ""]),
        ("(?i)ok", ["ok", "OK", "oK"], ["o"]),
        ("(?:x|y){2,3}", ["xy", "yyx"], ["x", "xyxy"]),
        ("a&b", ["a&b"], ["a", "b"]),
        ("~a#", ["~a#"], ["a"]),
        (r"\p{Lu}\p{Ll}*", ["Éa", "Abc"], ["abc", ""]),
        ("<tool_call>", ["<tool_call>"], ["<tool"]),
        ("", [""], ["a"]),
    ],
)
def test_regexes(regex: str, good: list[str], bad: list[str]) -> None:
    demand = Demand(output=TextGrammar("regex", regex))
    assert [text for text in good if not _accepts(demand, text)] == []
    assert [text for text in bad if _accepts(demand, text)] == []


@pytest.mark.parametrize("regex", ["(", "[a", "a{2,1}", "(?=a)", "(?<!a)b", r"\bword\b", r"(a)\1", "[^\\s\\S]", "*a"])
def test_regexes_that_cannot_be(regex: str) -> None:
    with pytest.raises(InvalidDemand) as caught:
        FAMILY.builder.build(Demand(output=TextGrammar("regex", regex)))
    assert caught.value.subject == "output" and "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("definition", "good", "bad"),
    [
        ('start: "a" | "b" start', ["a", "bba"], ["", "b", "ab"]),
        ("start: NUMBER (OP NUMBER)*\nNUMBER: /[0-9]+/\nOP: /[+*]/", ["1", "12+3*4"], ["", "1+", "+1"]),
        ("%import common.INT\nstart: INT", ["12"], ["a"]),
        ('start: "é😀" "\\n" "\\""', ['é😀\n"'], ["é"]),
        ('start: %json {"type": "array", "items": {"type": "integer"}}', ["[1,2]", "[]"], ["[a]", "{}"]),
        ('start: r0 T1\nr0: "x"\nT1: "y"', ["xy"], ["x", "y"]),  # names that the machine's own rules have too
        ('start: x // a comment\nx: "a" // another', ["a"], ["x"]),
    ],
)
def test_lark(definition: str, good: list[str], bad: list[str]) -> None:
    demand = Demand(output=TextGrammar("lark", definition))
    assert [text for text in good if not _accepts(demand, text)] == []
    assert [text for text in bad if _accepts(demand, text)] == []


@pytest.mark.parametrize(
    "choices",
    [
        ("yes", "no"),
        ("a", "ab", "abc"),
        ("", "a"),
        ('"', "\\", "\n", "'", "/"),
        ("é", "😀", "e\u0301"),
        ("<tool_call>", "</tool_call>"),
        ("x" * 200, "x" * 199 + "y"),
        tuple(f"option {number}" for number in range(3000)),
    ],
    ids=lambda choices: ascii(choices)[:30],
)
def test_choices(choices: tuple[str, ...]) -> None:
    demand = Demand(output=ListedText(choices))
    for text in (*choices[:20], choices[-1]):
        assert _accepts(demand, text), text
        assert not _accepts(demand, text + "!"), text


def test_a_choice_that_looks_like_a_marker_is_text() -> None:
    demand = Demand(output=ListedText(("<tool_call>",)))
    assert verdict(FAMILY.builder, demand, "<tool_call>") == "refused", "the token"
    assert _accepts(demand, "<tool_call>"), "the letters"
