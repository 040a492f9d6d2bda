"""Every format of draft 2020-12 binds: what is of it and what is not, letter by letter."""

import json
import random
import re
from pathlib import Path

import pytest

from proxy_inference_engine.state_machine.compiler import is_harmless
from proxy_inference_engine.state_machine.json_schema import json_grammar
from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.formats import OF_THE_LIBRARY, PATTERNS, PLAIN_TEXTS
from proxy_inference_engine.state_machine.json_schema.languages import language_of
from proxy_inference_engine.state_machine.json_schema.text_counts import PatternStrings
from tests.unit.state_machine.json_schema.acceptance import accepts, byte_tokenizer, compiled, written
from tests.unit.state_machine.json_schema.walks import walk

TOKENIZER = byte_tokenizer()
DOCUMENT = Path(__file__).parents[4] / "docs" / "structured.md"
CASES: dict[str, tuple[list[str], list[str]]] = {
    "date": (
        ["2024-02-29", "2000-02-29", "2023-12-31", "0000-01-01"],
        ["2023-02-29", "1900-02-29", "2024-02-30", "2024-04-31", "2024-13-01", "2024-1-1", "", "2024-01-0১"],
    ),
    "time": (
        ["12:00:00Z", "23:59:60Z", "23:59:59.5+01:30", "15:59:60-08:00", "00:59:60+01:00", "12:00:00z"],
        ["24:00:00Z", "12:00:00", "22:59:60Z", "23:59:60+01:00", "12:60:00Z", "12:00:00.Z", "12:00Z"],
    ),
    "date-time": (
        ["2024-02-29T12:00:00Z", "1998-12-31T23:59:60Z", "2024-01-01t00:00:00.123-07:00"],
        ["2023-02-29T12:00:00Z", "1998-12-31T23:58:60Z", "2024-01-01 12:00:00Z", "2024-01-01", "2024-01-01T12:00:00"],
    ),
    "duration": (["P1Y", "PT1H30M", "P3W", "P1DT12H"], ["P", "1Y", "P1", "PT", "P1Y2W", "PT1D"]),
    "email": (
        ["joe.bloggs@example.com", "te~st@example.com", "a@[127.0.0.1]",
         "a" * 64 + "@" + "b" * 63, "a@xn--bcher-kva.example"],
        ["joe", "@example.com", "joe@", "a..b@example.com", "a" * 65 + "@b",
         "a@" + "b" * 64, "a@" + ".".join(["b" * 62] * 5)],
    ),
    "idn-email": (
        ["실례@실례.테스트", "joe@example.com", "실" * 13 + "@b", "a" * 40 + "@b"],
        ["2962", "@실례", "a b@example.com", "a@-", "실" * 22 + "@b", "a" * 65 + "@b"],
    ),
    "hostname": (
        ["example.com", "a-b.c", "a", "ab", "a-b", "a--b", "ab-c-d", "a-b-c", "1-2.3", "a" * 63, "www.a.b.c.d.e.f"],
        ["-a", "a-", "a_b", "a..b", "", "a" * 64, "xn--X", "ab--c", "a.", ".".join(["a" * 63] * 4)],
    ),
    "idn-hostname": (
        ["실례.테스트", "bücher.example", "пример", "例え", "אבג.example", "1a.example"],
        ["1a.אבג", "1אבג", "aאבג", "-hello", "hello-", "〮실례", "a·l", "", ".", "xn--X", "ـߺ", "a b"],
    ),
    "ipv4": (["127.0.0.1", "255.255.255.255"], ["256.0.0.1", "1.2.3", "01.2.3.4", "1.2.3.4.5"]),
    "ipv6": (
        ["::1", "::", "1:2:3:4:5:6:7:8", "1::8", "::ffff:192.168.0.1", "fe80::a:b", "1:2:3:4:5:6:1.2.3.4"],
        ["1:2:3:4:5:6:7", "1::2::3", "::12345", "fe80::1%eth0", "1:2:3:4:5:6:7:8:9", "::ffff:256.0.0.1"],
    ),
    "uuid": (["2EB8AA08-AA98-11EA-B4AA-73B441D16380"], ["2eb8aa08-aa98-11ea-b4aa-73b441d1638", "not one"]),
    "uri": (
        ["http://example.com/a?b#c", "urn:isbn:1", "mailto:a@b.c", "http://[::1]:80/", "x:", "http://a/%20",
         "file:///a"],
        ["://", "//a/b", "/a", "a b", "http://[::1", "http://a/%2", "1http://a", "", "http://é.de", "a:<b>"],
    ),
    "uri-reference": (["/a/b", "", "#x", "?q", "//a", "a/b:c", "http://a"], ["\\\\a", "#a\\b", "1:b", "a b", "a:<"]),
    "iri": (
        ["http://ƒøø.ßår/?∂=1#x", "urn:é"],
        ["not-an-iri", "âππ", "/abc", "http://2001:db8::1", "\\\\é", "a:\u200e"],
    ),
    "iri-reference": (["âππ", "/é", "", "http://é"], ["\\\\é", "#ƒ\\m", "é b"]),
    "uri-template": (
        ["http://example.com/{a}{?b,c*}{/d:3}", "", "{+x}", "a%20", "{a.b}"],
        ["http://example.com/resource/{", "{}", "{a", "a}", "{a,}", "%2", "{a:0}", "a b", "\x85", "\ufffe"],
    ),
    "json-pointer": (["", "/a/b", "/~0~1", "/ ", "//"], ["a", "#/", "/~", "/~2", "/a~"]),
    "relative-json-pointer": (["0", "1/a", "10#", "0#"], ["", "/a", "-1/a", "01/a", "0##", "+1"]),
    "regex": (
        ["^a+$", "([abc])+\\s+$", "", "(?:a|b){2,}?", "[^a-z0-9_-]*", "\\d{1,3}(?=x)", "((a)(b(c)))", "a\\.b",
         "[^^-]", "[-]"],
        ["*", "\\", "^(abc]", "(", ")", "[a", "a{3,2}", "[z-a]", "\\a", "a**", "\\x1", "[]", "[^]", "(?=a)*",
         "\\-", "\\01", "^*"],
    ),
}  # fmt: skip


def accepted(schema: dict[str, object], text: str) -> bool:
    matcher, error = compiled(json_grammar(schema), TOKENIZER)
    assert matcher is not None, error
    return accepts(matcher, TOKENIZER, written(text))


def test_every_format_has_cases_and_stands_in_the_documents() -> None:
    assert CASES.keys() == OF_THE_LIBRARY | PATTERNS.keys()
    text = DOCUMENT.read_text()
    assert all(f"`{name}`" in text for name in CASES)


@pytest.mark.parametrize("name", CASES)
def test_what_is_of_a_format_and_nothing_else(name: str) -> None:
    good, bad = CASES[name]
    schema: dict[str, object] = {"type": "string", "format": name}
    assert [text for text in good if not accepted(schema, text)] == []
    assert [text for text in bad if accepted(schema, text)] == []


@pytest.mark.parametrize(
    ("rest", "good", "bad"),
    [
        ({"pattern": "^https:"}, ["https://a"], ["http://a", "https:// "]),
        ({"maxLength": 8}, ["http://a"], ["http://ab"]),
        ({"pattern": "^[a-z:/]+$", "minLength": 9}, ["http://ab"], ["http://a", "http://a1"]),
        ({"allOf": [{"format": "uri-reference"}, {"pattern": "b$"}]}, ["http://b"], ["http://a", "b"]),
    ],
)
def test_a_format_beside_others(rest: dict[str, object], good: list[str], bad: list[str]) -> None:
    schema = {"type": "string", "format": "uri", **rest}
    assert [text for text in good if not accepted(schema, text)] == []
    assert [text for text in bad if accepted(schema, text)] == []


# What people write beside it, Zod's own among them.
MAIL_PATTERNS = [
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
    r"^\S+@\S+\.\S+$",
    "^(.+)@(.+)$",
    "@example\\.com$",
]


@pytest.mark.parametrize("pattern", MAIL_PATTERNS)
def test_an_address_beside_a_pattern(pattern: str) -> None:
    schema: dict[str, object] = {"type": "string", "format": "email", "pattern": pattern}
    assert accepted(schema, "joe.bloggs@example.com")
    assert not accepted(schema, "a" * 65 + "@example.com") and not accepted(schema, "joe")


def test_a_format_binds_strings_alone() -> None:
    matcher, error = compiled(json_grammar({"format": "date"}), TOKENIZER)
    assert matcher is not None, error
    assert accepts(matcher, TOKENIZER, "12") and accepts(matcher, TOKENIZER, "null")
    assert accepts(matcher, TOKENIZER, '"2024-02-29"') and not accepts(matcher, TOKENIZER, '"2023-02-29"')


def test_expressions_that_are_accepted_are_expressions() -> None:
    """Python's own reader as a witness; it differs from JavaScript's in what is not offered here."""
    for text in CASES["regex"][0]:
        re.compile(text)
    matcher, error = compiled(json_grammar({"type": "string", "format": "regex"}), TOKENIZER)
    assert matcher is not None, error
    texts = [walk(matcher, random.Random(seed)) for seed in range(30)]
    whole = [text.decode() for text in texts if text is not None and text.isascii()]
    assert len(whole) > 5
    for text in whole:
        re.compile(json.loads(text))


@pytest.mark.parametrize("name", CASES)
def test_a_format_alone_is_compiled_at_once(name: str) -> None:
    grammar = json_grammar({"type": "object", "properties": {"a": {"type": "string", "format": name}}})
    assert is_harmless("start: " + grammar.lark)
    counted = json_grammar({"type": "string", "format": name, "maxLength": 5000})
    assert not is_harmless("start: " + counted.lark)


@pytest.mark.parametrize("name", PLAIN_TEXTS)
def test_plain_texts_of_a_format_are_of_it_and_many(name: str) -> None:
    """Where items differ they stand for all of it: from each beginning there have to be as many as are counted."""
    pattern, longest = PLAIN_TEXTS[name]
    most = {} if longest is None else {"maxLength": longest + 12}
    plain = compiled(json_grammar({"type": "string", "pattern": pattern, **most}), TOKENIZER).matcher
    whole = compiled(json_grammar({"type": "string", "format": name}), TOKENIZER).matcher
    assert plain is not None and whole is not None
    counted = PatternStrings(language_of(pattern), StepBudget().think, longest)
    source, num = random.Random(name), 0
    while num < 40:
        text = walk(plain, source)
        if text is not None:
            num += 1
            assert accepts(whole, TOKENIZER, text.decode()), text
    assert counted.num_from(b'"') > 10_000_000
    assert longest is None or counted.num_from(b'"' + b"a" * longest) > 10_000_000
    assert longest is None or counted.num_from(b'"' + b"a" * (longest + 1)) == 0
