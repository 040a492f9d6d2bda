"""GBNF in Lark: what llama.cpp's grammars admit is admitted, what they do not is not, and errors name a line."""

from contextlib import suppress

import llguidance
import pytest

from proxy_inference_engine.state_machine.gbnf import MalformedGbnf, is_gbnf, lark_of
from tests.unit.state_machine.json_schema.acceptance import byte_tokenizer
from tests.unit.state_machine.json_schema.work import lines_of

# As llama.cpp's grammars/json.gbnf puts it together, in words of our own.
JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws  # with escapes
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""

CASES: list[tuple[str, list[str], list[str]]] = [
    (
        JSON,
        ["{}", '{"a": 1}', '{"a": [1,2,{"b":null}]} ', '{"a":-1.5e3}', '{"é":"x\\n"}', '{"a": [] }'],
        ["[1]", '{"a": tru}', '{"a"}', '{"a":01x}'],
    ),
    ('root ::= "a" "bc" | "ab" "d"', ["abc", "abd"], ["ab", "abcd"]),
    ('root ::= [a-z]+ "x"?', ["ax", "x", "abc"], ["A", ""]),
    ('root ::= "(" root ")" | "x"', ["x", "((x))"], ["((x)", "()"]),
    ('root ::= e\ne ::= e "+" t | t\nt ::= [0-9]+', ["1+2+3", "12"], ["+", "1+"]),
    ("root ::= .", ["\n", "é", "x"], ["ab", ""]),
    ('root ::= ""', [""], ["a"]),
    ("root ::= [^a-c]{2}", ["de", "\nz"], ["ad", "d"]),
    ('root ::= "yes"\n  | "no"', ["yes", "no"], ["maybe"]),
    (r"root ::= [-a]+ [\]x]", ["-a]", "ax"], ["b]"]),
    (r"root ::= [a\-c]+", ["a-c"], ["b"]),
    ('root ::= "a"{2,3}', ["aa", "aaa"], ["a", "aaaa"]),
    ('root ::= ("a" | "b"){2,}', ["ab", "bbb"], ["a"]),
    ('root ::= "\\u00e9\\U0001F600\\x41"', ["é😀A"], ["e"]),
    ('# a comment\nroot ::= item+ # another\nitem ::= "- " [^\\n]+ "\\n"', ["- a\n- b\n"], ["- a"]),
    ('root ::= a-b\na-b ::= "x"', ["x"], ["a"]),
]


def admits(matcher: llguidance.LLMatcher, tokenizer: llguidance.LLTokenizer, text: str) -> bool:
    ids = tokenizer.tokenize_str(text)
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


@pytest.mark.parametrize(("grammar", "valid", "invalid"), CASES, ids=lambda each: str(each)[:30])
def test_what_a_grammar_admits(grammar: str, valid: list[str], invalid: list[str]) -> None:
    assert is_gbnf(grammar)
    tokenizer = byte_tokenizer()
    compiled = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_lark(lark_of(grammar)))
    assert not compiled.is_error(), compiled.get_error()
    for text in valid:
        assert admits(compiled.deep_copy(), tokenizer, text), f"rejects {text!r}"
    for text in invalid:
        assert not admits(compiled.deep_copy(), tokenizer, text), f"accepts {text!r}"


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ('root ::= "a', "line 1: '\"' is expected"),
        ("root ::= b", "line 1: there is no rule 'b'"),
        ('x ::= "a"', "there is no rule 'root'"),
        ('root ::= (\n "a"\n', "line 3: '\\)' is expected"),
        ('root ::= "a" )', "line 1: the end of the rule"),
        ('root ::= "a"\nroot ::= "b"', "line 2: the rule 'root' comes twice"),
        ("root ::= [z-a]", "line 1: a range"),
        ("root ::= []", "line 1: a class needs"),
        ("root ::= <think>", "line 1: tokens"),
        ('root ::= "a"{3,1}', "line 1: the bounds"),
        (r'root ::= "\xZZ"', "line 1: an unknown escape"),
        (r'root ::= "\uD800"', "line 1: an escape that is no character"),
        ('root "a"', "line 1: '::='"),
        ("root ::= " + "(" * 100, "line 1: the parentheses"),
    ],
)
def test_what_is_malformed_is_refused_with_its_line(grammar: str, reason: str) -> None:
    with pytest.raises(MalformedGbnf, match=reason):
        lark_of(grammar)


def test_lark_is_not_taken_for_gbnf() -> None:
    assert not is_gbnf('start: "a" // ::=')


@pytest.mark.parametrize(
    "grammar",
    [
        "root ::= [" + "a-z" * 80_000 + "]",
        'root ::= "a"' + "*" * 200_000,
        "root ::= " + "root " * 50_000,
        "\n".join(f"r{number} ::= r{number + 1}" for number in range(1000)),
        "\n".join(f'r{number} ::= "a"' for number in range(5000)),
        'root ::= "' + "a" * 300_000 + '"',
    ],
    ids=["class", "stars", "references", "chain", "rules", "long"],
)
def test_hostile_grammars_end(grammar: str) -> None:
    def work() -> None:
        with suppress(MalformedGbnf):
            lark_of(grammar)

    assert lines_of(work, 12_000_000) > 0
