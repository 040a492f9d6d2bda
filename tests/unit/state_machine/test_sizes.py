"""Sizes of clients' regexes and Lark grammars: what a repetition comes to, however it is written."""

import json

import pytest

from proxy_inference_engine.state_machine.demand import InvalidDemand
from proxy_inference_engine.state_machine.lark_reader import parts_of, rules_of
from proxy_inference_engine.state_machine.sizes import check_lark, check_patterns, lark_size, regex_size


@pytest.mark.parametrize(
    ("regex", "size"),
    [
        ("", 0),
        ("abc", 3),
        ("a{10}", 10),
        ("a{2,10}", 10),
        ("a{10,}", 10),
        ("a{,10}", 10),
        ("a{0000010}", 10),
        ("a{2,0000000000000010}", 10),
        ("(ab){10}", 20),
        ("((a{3}){3}){3}", 27),
        ("[a-z]{5}", 5),
        (r"[\]]{5}", 5),
        (r"\{5}", 3),
        (r"\x{1000}", 1),
        (r"\p{L}{7}", 7),
        ("(?x)a{ 1000 }", 1002),
        ("(?x)a{ # many\n 1000 }", 1002),
        ("(?ix: a { 10 , 20 })", 24),
        ("a{ 20 }", 20),
        ("a{x}", 4),
    ],
)
def test_regexes(regex: str, size: int) -> None:
    assert regex_size(regex) == size


@pytest.mark.parametrize(
    "regex", ["a{99999999999999999999}", "(a{1000}){1000}", "(?x)(a{ 1000 }){ 1000 }", "a{0,20001}"]
)
def test_regexes_that_are_too_large(regex: str) -> None:
    with pytest.raises(InvalidDemand, match="too large"):
        check_patterns({"items": {"pattern": regex}})
    with pytest.raises(InvalidDemand, match="too large"):
        check_patterns({"patternProperties": {regex: True}})
    with pytest.raises(InvalidDemand, match="too large"):
        check_lark(f"start: /{regex}/")


@pytest.mark.parametrize(
    ("definition", "size"),
    [
        ('start: "abc"', 5),
        ("start: /a/{10}", 10),
        ("start: /a/{2,10}", 10),
        ("start: /a/{,10}", 10),
        ("start: /a/{ , 10 }", 10),
        ("start: /a/{0010}", 10),
        ("start: /a/~10", 10),
        ("start: /a/ ~ 2..10", 10),
        ("start: (/a/ /b/){5}", 10),
        ("start: [/a/ /b/]{5}", 10),
        ("start: x{5}\nx: y{5}\ny: /a{5}/", 125),
        ("start: X{5}\nX: /a{5}/", 25),
        ("start: x{5} // {9}\nx: /a/ # {9}", 5),
        ("start: /a { 10 }/x", 10),
        ("start: x\n?x: /a{9}/\n!y.2: /b/", 9),
        ('start[max_tokens=500]: "a"', 3),
        ("start: start /a/", 2),
        ("start: /a/\n | /b/{4}", 5),
        ("start: aB\na: /x{7}/\nB: /y{5}/", 12),
        ('start: %json {"maxLength": 1000} /a/{3}', 3),
    ],
)
def test_lark(definition: str, size: int) -> None:
    assert lark_size(parts_of(definition)) == size


TOO_LARGE = [
    "start: /a/{00000000000020001}",
    "start: /a/{,20001}",
    "start: x{150}\nx: y{ 150 }\ny: /a/",
    "start: (%lark {\n start: /a{500}/\n}){100}",
    "start: /x/ // /\nx: /a/{30000}",
    'start: %json {"type": "string", "pattern": "^(a{999}){999}$"}',
    'start: %json {"patternProperties": {"(a{999}){999}": true}}',
    'start: x\nx: %json {"\\u0070attern": "(a{999}){999}"}',
]


@pytest.mark.parametrize("definition", TOO_LARGE)
def test_lark_that_is_too_large(definition: str) -> None:
    with pytest.raises(InvalidDemand, match="too large"):
        check_lark(definition)


@pytest.mark.parametrize(
    "definition",
    [
        "start: @g0",
        'start: "a" | @g0',
        "//x\nstart: @g0",
        "start: x // it's\nx: @g0",
        "start: /a/ // /\nx: @main",
        '%llguidance {"no_forcing": false}\nstart: "a"',
        'start: %json {"x-guidance": {"lenient": true}}',
        'start: %json {"items": [{"x-\\u0067uidance": {}}]}',
        "start: %json {",
        "start: %regex nothing",
        "start: " + "x " * 200_000,
    ],
    ids=lambda text: text[:40],
)
def test_lark_that_reaches_out(definition: str) -> None:
    with pytest.raises(InvalidDemand):
        check_lark(definition)


@pytest.mark.parametrize(
    "definition",
    ['start: "@g0"', "start: /a@b/", "start: x // @g0\nx: /a/", 'start: "%llguidance x-guidance"', "start: /[@]/ # @x"],
)
def test_lark_that_only_looks_so(definition: str) -> None:
    check_lark(definition)


def test_rules_are_found_by_their_heads() -> None:
    text = 'start: a b // a comment: no rule\na[suffix="x:"]: "b:"\n  | /c:/\n%ignore /x/\n'
    text += 'b.3: "d"\na: "again"\nnot a rule'
    rules = rules_of(parts_of(text))
    assert list(rules) == ["start", "a", "b"]
    assert [part.text for part in rules["a"] if part.kind in ("text", "regex")] == ['"b:"', "/c:/", "/x/", '"again"']


def test_a_schema_with_no_end_of_patterns_is_refused() -> None:
    with pytest.raises(InvalidDemand, match="too large"):
        check_patterns({"anyOf": [{"pattern": "a" * 15_000}] * 100})


def test_what_is_no_pattern_is_left_alone() -> None:
    check_patterns(json.loads('{"properties": {"pattern": {"const": "(a{999}){999}"}}, "pattern": 5, "enum": [[]]}'))
