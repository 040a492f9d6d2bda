"""Arguments in the styles of tags and of Python, and custom tools in every style."""

from collections.abc import Iterable
from typing import Any

import pytest

from proxy_inference_engine.interaction import TextGrammar, Tool, ToolKind
from proxy_inference_engine.state_machine.demand import Demand, InvalidDemand, ToolChoice
from tests.unit.state_machine.families import Family
from tests.unit.state_machine.vocabularies import verdict

CODER, GLM, GEMMA, QWEN = (Family(name, has_tokens=True) for name in ("qwen3_coder", "glm45", "gemma3", "qwen3"))
STYLED = pytest.mark.parametrize("family", [CODER, GLM, GEMMA], ids=str)


def _demand(*tools: Tool) -> Demand:
    return Demand(tools=tools, tool_choice=ToolChoice("required"), is_parallel=False, can_reason=False)


def _tool(properties: dict[str, Any], required: Iterable[str] | None = None, **rest: Any) -> Tool:
    needed = list(properties if required is None else required)
    is_strict = rest.pop("is_strict", False)
    schema = {"type": "object", "properties": properties, "required": needed, "additionalProperties": False, **rest}
    return Tool("f", "", schema, is_strict=is_strict)


def _tags(*pairs: tuple[str, str]) -> str:
    values = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in pairs)
    return f"<tool_call>\n<function=f>\n{values}</function>\n</tool_call>"


def _glm(*pairs: tuple[str, str]) -> str:
    values = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in pairs)
    return f"<tool_call>f\n{values}</tool_call>"


def _python(*pairs: tuple[str, str]) -> str:
    return f"```tool_code\nf({', '.join(f'{key}={value}' for key, value in pairs)})\n```"


WRITERS = {"qwen3_coder": _tags, "glm45": _glm, "gemma3": _python}


def _is_accepted(family: Family, tool: Tool, *pairs: tuple[str, str]) -> bool:
    return verdict(family.builder, _demand(tool), WRITERS[family.name](*pairs)) == "complete"


STRINGS: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({}, ["", "a", 'a "b" \\ é 😀', "two\nlines", "<parameter=x>", "</para", "true"], []),
    ({"enum": ["a", "b c", "é"]}, ["a", "b c", "é"], ["", "b", "a "]),
    ({"const": "x-1"}, ["x-1"], ["", "x", "x-12"]),
    ({"pattern": "^[a-z]+$"}, ["a", "abc"], ["", "A", "a1"]),
    ({"pattern": "^a|b$"}, ["a", "b"], ["c", ""]),
    ({"pattern": "[0-9]"}, ["1", "a1b", "\n7\n"], ["", "abc"]),
    ({"pattern": "^x"}, ["x", "xyz", "x\ny"], ["yx", ""]),
    ({"pattern": "x$"}, ["x", "zyx"], ["xy", ""]),
    ({"minLength": 2}, ["ab", "abc", "éé"], ["a", "é", ""]),
    ({"maxLength": 3}, ["", "abc", "é😀é"], ["abcd"]),
    ({"minLength": 2, "maxLength": 3}, ["ab", "abc"], ["a", "abcd"]),
    ({"pattern": "^[a-z]+$", "maxLength": 3}, ["abc"], ["abcd", "AB"]),
    ({"enum": ["a", "bb"], "minLength": 2}, ["bb"], ["a"]),
    ({"enum": ["a", "bb"], "pattern": "^b"}, ["bb"], ["a"]),
    ({"title": "T", "description": "d", "default": "x", "examples": ["y"]}, ["anything"], []),
]


@pytest.mark.parametrize("family", [CODER, GLM], ids=str)
@pytest.mark.parametrize(("keywords", "good", "bad"), STRINGS, ids=lambda value: str(value)[:40])
def test_strings_in_tags_are_raw(family: Family, keywords: dict[str, Any], good: list[str], bad: list[str]) -> None:
    tool = _tool({"s": {"type": "string", **keywords}})
    assert [text for text in good if not _is_accepted(family, tool, ("s", text))] == []
    assert [text for text in bad if _is_accepted(family, tool, ("s", text))] == []


@pytest.mark.parametrize(("keywords", "good", "bad"), STRINGS[1:-1], ids=lambda value: str(value)[:40])
def test_strings_in_python_are_quoted(keywords: dict[str, Any], good: list[str], bad: list[str]) -> None:
    tool = _tool({"s": {"type": "string", **keywords}})
    plain = [text for text in good if "\n" not in text]
    assert [text for text in plain if not _is_accepted(GEMMA, tool, ("s", f'"{text}"'))] == []
    assert [text for text in bad if _is_accepted(GEMMA, tool, ("s", f'"{text}"'))] == []


VALUES: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"type": "integer", "minimum": 0, "maximum": 20}, ["0", "20"], ["-1", "21", "1.5", '"1"', ""]),
    ({"type": "number"}, ["1", "-1.5", "1e3"], ["one", "--1"]),
    ({"enum": [1, 2]}, ["1", "2"], ["3", "12"]),
    ({"const": 7}, ["7"], ["8"]),
    ({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, ["[]", "[1, 2]"], ["[1, 2, 3]", "[true]", "1"]),
    (
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
        ['{"a": 1}'],
        ["{}", '{"a": "x"}', '{"b": 1}'],
    ),
    ({"$ref": "#/$defs/pair"}, ["[1, 2]"], ["[1]", "[]", "1"]),
    ({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]}, ["1", '"ab"'], ["ab", '"abc"']),
    ({"type": ["string", "integer"]}, ["1", '"a"'], ["a", "true"]),
    ({"enum": ["a", 1]}, ["1", '"a"'], ["a", "2"]),
]
DEFS = {"pair": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}}


@STYLED
@pytest.mark.parametrize(("schema", "good", "bad"), VALUES, ids=lambda value: str(value)[:40])
def test_other_values_are_json(family: Family, schema: dict[str, Any], good: list[str], bad: list[str]) -> None:
    tool = _tool({"v": schema}, **{"$defs": DEFS})
    assert [text for text in good if not _is_accepted(family, tool, ("v", text))] == []
    assert [text for text in bad if _is_accepted(family, tool, ("v", text))] == []


@pytest.mark.parametrize(
    ("family", "schema", "good", "bad"),
    [
        (CODER, {"type": "boolean"}, ["true", "false"], ["True", "1", '"true"']),
        (GLM, {"type": "null"}, ["null"], ["None", ""]),
        (GEMMA, {"type": "boolean"}, ["True", "False"], ["true", "1", "TrueFalse"]),
        (GEMMA, {"type": "null"}, ["None"], ["null", "0"]),
        (GEMMA, {"type": "boolean", "const": True}, ["true"], ["True", "False", "false"]),
        (GEMMA, {"type": "boolean", "enum": [False]}, ["false"], ["False", "true"]),
    ],
)
def test_booleans_and_null(family: Family, schema: dict[str, Any], good: list[str], bad: list[str]) -> None:
    tool = _tool({"v": schema})
    assert [text for text in good if not _is_accepted(family, tool, ("v", text))] == []
    assert [text for text in bad if _is_accepted(family, tool, ("v", text))] == []


A, B, C = ("a", "1"), ("b", "2"), ("c", "3")
NUMBERS = {name: {"type": "integer"} for name in "abc"}


@STYLED
@pytest.mark.parametrize(
    ("required", "good", "bad"),
    [
        ("", [(), (A,), (B,), (C,), (A, C), (A, B, C), (B, C)], [(B, A), (A, A), (C, B, A)]),
        ("b", [(B,), (A, B), (B, C), (A, B, C)], [(), (A,), (C,), (A, C), (B, A)]),
        ("ac", [(A, C), (A, B, C)], [(), (A,), (C,), (A, B), (B, C), (C, A)]),
        ("abc", [(A, B, C)], [(A, B), (B, C), (A, C), (C, B, A)]),
    ],
)
def test_optional_parameters_come_in_order(family: Family, required: str, good: list[Any], bad: list[Any]) -> None:
    tool = _tool(NUMBERS, required)
    assert [pairs for pairs in good if not _is_accepted(family, tool, *pairs)] == []
    assert [pairs for pairs in bad if _is_accepted(family, tool, *pairs)] == []


@STYLED
@pytest.mark.parametrize("parameters", [None, {}, {"type": "object"}, {"type": "object", "properties": {}}])
def test_no_parameters(family: Family, parameters: dict[str, Any] | None) -> None:
    tool = Tool("f", "", parameters)
    assert _is_accepted(family, tool)
    assert not _is_accepted(family, tool, A)


@STYLED
def test_a_parameter_that_may_not_be_there_is_not(family: Family) -> None:
    tool = _tool({"a": {"type": "integer"}, "b": False}, ["a"])
    assert _is_accepted(family, tool, A)
    assert not _is_accepted(family, tool, A, B)


@STYLED
def test_any_value_where_the_schema_says_nothing(family: Family) -> None:
    anything: list[Any] = [True, {}]
    for schema in anything:
        tool = _tool({"v": schema})
        assert all(_is_accepted(family, tool, ("v", text)) for text in ("1", '"a"', "[]", "null", '{"a": [1]}'))
        assert not _is_accepted(family, tool, ("v", "a"))


@STYLED
@pytest.mark.parametrize("name", ["a b", "a-b", "é", "a.b", "<x>", 'q"t', "a=b", "😀"])
def test_awkward_names(family: Family, name: str) -> None:
    assert _is_accepted(family, _tool({name: {"type": "integer"}}), (name, "1"))


@STYLED
def test_required_but_not_described(family: Family) -> None:
    schema = {"type": "object", "properties": {"a": {}}, "required": ["a", "x"]}
    with pytest.raises(InvalidDemand, match="'x' is not among its properties") as caught:
        family.builder.build(_demand(Tool("g"), Tool("f", "", schema, is_strict=True)))
    assert (caught.value.subject, caught.value.index) == ("tool", 1)
    assert family.builder.build(_demand(Tool("g"), Tool("f", "", schema))).relaxed == ("f/:required",)


@STYLED
@pytest.mark.parametrize("keyword", ["allOf", "minProperties", "patternProperties", "if"])
def test_what_cannot_bind_is_refused_when_strict_and_listed_otherwise(family: Family, keyword: str) -> None:
    value: Any = {"allOf": [{}], "minProperties": 1}.get(keyword, {})
    relaxed = family.builder.build(_demand(_tool({"a": {"type": "integer"}}, **{keyword: value}))).relaxed
    assert relaxed == (f"f/:{keyword}",)
    with pytest.raises(InvalidDemand, match=f"'f'.*'{keyword}'") as caught:
        family.builder.build(_demand(Tool("g"), _tool({"a": {}}, is_strict=True, **{keyword: value})))
    assert (caught.value.subject, caught.value.index) == ("tool", 1)


@pytest.mark.parametrize("family", [CODER, GLM], ids=str)
def test_the_format_of_a_raw_string_cannot_bind(family: Family) -> None:
    schema = {"type": "string", "format": "date"}
    assert family.builder.build(_demand(_tool({"day": schema}))).relaxed == ("f/day:format",)
    with pytest.raises(InvalidDemand, match="format"):
        family.builder.build(_demand(_tool({"day": schema}, is_strict=True)))


@STYLED
def test_annotations_relax_nothing(family: Family) -> None:
    tool = _tool({"a": {"type": "integer", "description": "d"}}, title="t", description="d", **{"$schema": "x"})
    assert family.builder.build(_demand(tool)).relaxed == ()


@STYLED
def test_an_impossible_parameter_is_refused_by_the_tools_name_when_strict(family: Family) -> None:
    tool = _tool({"a": {"type": "integer", "minimum": 3, "maximum": 1}}, is_strict=True)
    with pytest.raises(InvalidDemand, match="'f'") as caught:
        family.builder.build(_demand(Tool("g"), tool))
    assert (caught.value.subject, caught.value.index) == ("tool", 1)


@STYLED
def test_an_impossible_parameter_loses_what_contradicts_itself(family: Family) -> None:
    """One tool of many used to refuse the whole request."""
    tool = _tool({"a": {"type": "integer", "enum": ["1", "2"]}, "b": {"type": "integer"}})
    assert family.builder.build(_demand(Tool("g"), tool)).relaxed == ("f/properties/a:type",)
    assert _is_accepted(family, tool, ("a", "1" if family in (CODER, GLM) else '"1"'), ("b", "3"))
    assert not _is_accepted(family, tool, ("a", "3"), ("b", "3"))


# Custom tools

FREE = Tool("f", kind=ToolKind.CUSTOM)
REGEX = Tool("f", kind=ToolKind.CUSTOM, grammar=TextGrammar("regex", "[a-z]+|[0-9]{2}"))
LARK = Tool("f", kind=ToolKind.CUSTOM, grammar=TextGrammar("lark", 'start: "a" WORD\nWORD: /[0-9 ]+/'))


@pytest.mark.parametrize("family", [CODER, GLM], ids=str)
@pytest.mark.parametrize(
    ("tool", "good", "bad"),
    [
        (FREE, ["", 'any "text" \\', "two\nlines"], []),
        (REGEX, ["abc", "12"], ["", "a1", "123", "abc "]),
        (LARK, ["a1 2", "a9"], ["a", "b1", ""]),
    ],
)
def test_custom_tools_in_tags(family: Family, tool: Tool, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not _is_accepted(family, tool, ("input", text))] == []
    assert [text for text in bad if _is_accepted(family, tool, ("input", text))] == []
    assert not _is_accepted(family, tool)


@pytest.mark.parametrize(
    ("tool", "good", "bad"),
    [
        (FREE, ['""', r'"a \" b"'], ["abc", ""]),
        (REGEX, ['"abc"', '"12"'], ['"a1"', "abc", '""']),
        (LARK, ["a1 2"], ['"a1"', "b1"]),
    ],
)
def test_custom_tools_in_python(tool: Tool, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not _is_accepted(GEMMA, tool, ("input", text))] == []
    assert [text for text in bad if _is_accepted(GEMMA, tool, ("input", text))] == []


@pytest.mark.parametrize(
    ("tool", "good", "bad"),
    [
        (FREE, ['{"input": ""}', r'{"input": "a \" b\n"}'], ["abc", "{}", '{"input": 1}', '{"input": "a", "b": 1}']),
        (REGEX, ['{"input": "abc"}'], ['{"input": "A"}', "abc"]),
        (LARK, ["a1 2"], ['{"input": "a1"}', "b1"]),
    ],
)
def test_custom_tools_in_json(tool: Tool, good: list[str], bad: list[str]) -> None:
    def is_accepted(text: str) -> bool:
        call = f'<tool_call>\n{{"name": "f", "arguments": {text}}}\n</tool_call>'
        return verdict(QWEN.builder, _demand(tool), call) == "complete"

    assert [text for text in good if not is_accepted(text)] == []
    assert [text for text in bad if is_accepted(text)] == []


@pytest.mark.parametrize("family", [CODER, GLM, GEMMA, QWEN], ids=str)
@pytest.mark.parametrize(
    "grammar",
    [
        TextGrammar("regex", "("),
        TextGrammar("regex", "(?=a)"),
        TextGrammar("lark", "start: nothing"),
        TextGrammar("lark", 'begin: "a"'),
        TextGrammar("lark", 'start: %json {"x-guidance": {}, "type": "object"}'),
    ],
)
def test_a_bad_grammar_of_a_custom_tool_is_named(family: Family, grammar: TextGrammar) -> None:
    with pytest.raises(InvalidDemand, match="'f'") as caught:
        family.builder.build(_demand(Tool("g"), Tool("f", kind=ToolKind.CUSTOM, grammar=grammar)))
    assert (caught.value.subject, caught.value.index) == ("tool", 1)


@pytest.mark.parametrize("family", [CODER, GLM, GEMMA, QWEN], ids=str)
def test_a_regex_with_anchors_of_its_own(family: Family) -> None:
    """People write ^ and $ though the whole text is meant anyway."""
    tool = Tool("f", kind=ToolKind.CUSTOM, grammar=TextGrammar("regex", "^[a-z]+$"))
    if family is QWEN:
        call = '<tool_call>\n{"name": "f", "arguments": {"input": "abc"}}\n</tool_call>'
        assert verdict(family.builder, _demand(tool), call) == "complete"
    else:
        assert _is_accepted(family, tool, ("input", '"abc"' if family is GEMMA else "abc"))


@pytest.mark.parametrize("family", [CODER, GLM, GEMMA, QWEN], ids=str)
def test_a_lark_text_that_may_go_on_for_ever_ends_where_the_call_does(family: Family) -> None:
    tool = Tool("f", kind=ToolKind.CUSTOM, grammar=TextGrammar("lark", "start: /(.|\\n)+/"))
    call = '<tool_call>\n{"name": "f", "arguments": abc}\n</tool_call>'
    if family is not QWEN:
        call = WRITERS[family.name](("input", "abc"))
    assert verdict(family.builder, _demand(tool), call) == "complete"


# What is wrong with a schema is said, in every style


@pytest.mark.parametrize("family", [CODER, GLM, GEMMA, QWEN], ids=str)
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": [1]},
        {"properties": {"a": 5}},
        {"required": 5},
        {"x-guidance": {}},
        {"properties": {"a": {"x-guidance": {}}}},
        {"properties": {"a": {"type": "string", "pattern": 5}}},
        {"properties": {"a": {"type": "string", "pattern": "("}}},
        {"properties": {"a": {"type": "string", "enum": 5}}},
        {"properties": {"a": {"type": "string", "minLength": "x"}}},
        {"properties": {"a": {"type": "string", "minLength": -1}}},
        {"properties": {"a": {"$ref": "#/$defs/nothing"}}},
    ],
    ids=str,
)
def test_malformed_schemas_are_refused_by_the_tools_name(family: Family, schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidDemand, match="'f'") as caught:
        family.builder.build(_demand(Tool("g"), Tool("f", "", schema)))
    assert (caught.value.subject, caught.value.index) == ("tool", 1)


@pytest.mark.parametrize("family", [CODER, GLM, GEMMA, QWEN], ids=str)
@pytest.mark.parametrize(
    ("schema", "relaxed"),
    [
        ({"type": "string", "minLength": 5, "maxLength": 2}, "f/properties/a:maxLength"),
        ({"type": "string", "enum": []}, "f/properties/a:enum"),
    ],
)
def test_contradictions_are_refused_when_strict_and_listed_otherwise(
    family: Family, schema: dict[str, Any], relaxed: str
) -> None:
    parameters = {"properties": {"a": schema}, "required": ["a"]}
    with pytest.raises(InvalidDemand, match="'f'") as caught:
        family.builder.build(_demand(Tool("g"), Tool("f", "", parameters, is_strict=True)))
    assert (caught.value.subject, caught.value.index) == ("tool", 1)
    assert family.builder.build(_demand(Tool("g"), Tool("f", "", parameters))).relaxed == (relaxed,)


@STYLED
def test_lengths_may_be_written_as_floats(family: Family) -> None:
    text = '"abc"' if family is GEMMA else "abc"
    assert _is_accepted(family, _tool({"s": {"type": "string", "maxLength": 3.0}}), ("s", text))


@pytest.mark.parametrize(
    ("schema", "bad"),
    [({"type": "boolean", "not": {"const": True}}, "True"), ({"type": "boolean", "allOf": [{"const": False}]}, "True")],
)
def test_booleans_with_more_keywords_are_bound_by_them(schema: dict[str, Any], bad: str) -> None:
    assert not _is_accepted(GEMMA, _tool({"v": schema}), ("v", bad))


@STYLED
def test_references_to_other_parameters(family: Family) -> None:
    tool = _tool({"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}})
    assert _is_accepted(family, tool, A, B)
    assert not _is_accepted(family, tool, A, ("b", '"x"'))
