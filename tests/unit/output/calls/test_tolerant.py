"""Calls no grammar held to a syntax: read if there is one way to read them, text otherwise."""

import pytest

from proxy_inference_engine.formats.hermes import HERMES_CALLS
from proxy_inference_engine.interaction import Tool
from proxy_inference_engine.output.calls.tolerant import read_calls
from tests.unit.output.parsing import Call, Parsed, Recording, cuts, itemise, labels_of, parse
from tests.unit.output.recordings import HARD, PARIS, RECORDINGS, ROME, hermes

_WEATHER = "get_weather"


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('{"name": "get_weather", "arguments": {"city": "Rome"}}', '{"city": "Rome"}'),
        ('\n\n { "name" :"get_weather","parameters":{"city":"Rome"} }\n', '{"city": "Rome"}'),
        ('{"arguments": {"city": "Rome"}, "name": "get_weather"}', '{"city": "Rome"}'),
        ('{"name": "get_weather", "input": {"city": "Rome"}}', '{"city": "Rome"}'),
        ("{'name': 'get_weather', 'arguments': {'city': \"it's\", 'is_exact': True, 'options': None}}",
         '{"city": "it\'s", "is_exact": true, "options": null}'),
        (r"{'name': 'get_weather', 'arguments': {'city': 'it\'s'}}", '{"city": "it\'s"}'),
        (r'{"name": "get_weather", "arguments": "{\"city\": \"Rome\"}"}', '{"city": "Rome"}'),
        ('{"name": "get_weather", "arguments": null}', "{}"),
        ('{"name": "get_weather"}', "{}"),
        ('{"type": "function", "function": {"name": "get_weather", "arguments": {}}}', "{}"),
        ('{"name": "get_weather", "arguments": {"city": "a\nb"}}', r'{"city": "a\nb"}'),
        ('{"name": "get_weather", "arguments": {"city": "</tool_call>"}}', '{"city": "</tool_call>"}'),
        (f'{{"name": "get_weather", "arguments": {HARD}}}',
         r'{"city": "a\"}]) </tool_call> \\", "options": {"x": [{}, "{é😀\n"]}}'),
        ('{"name": "get_weather", "arguments": {"days": 12345678901234567890.10e+5}}',
         '{"days": 12345678901234567890.10e+5}'),
        ('get_weather {"city": "x"}', '{"city": "x"}'),
        ('get_weather(city="Rome", days=2)', '{"city": "Rome", "days": 2}'),
        ("get_weather(city='Rome',\n  options={'a': [1, False]})", '{"city": "Rome", "options": {"a": [1, false]}}'),
        ('get_weather("Rome", 2)', '{"city": "Rome", "days": 2}'),
        ('get_weather("Rome", days=2)', '{"city": "Rome", "days": 2}'),
        ('{"name": "get_weather", "arguments": {"city": "Rome", "options": {"x": 1, "x": 2}, "city": "Paris"}}',
         '{"city": "Rome", "options": {"x": 1}}'),
        ("get_weather()", "{}"),
        ("get_weather", "{}"),
        ("get_weather --city Rome --days 2 is_exact=true --unit=C",
         '{"city": "Rome", "days": 2, "is_exact": true, "unit": "C"}'),
        ("get_weather --city 'New York' --is_exact", '{"city": "New York", "is_exact": true}'),
        ("get_weather city=12", '{"city": "12"}'),  # the schema allows only strings
        ("get_weather -days -2", '{"days": -2}'),
        ("get_weather days=soon", '{"days": "soon"}'),
        ("get_weather Rome", '{"city": "Rome"}'),
        ("get_weather 'New York' --days=2", '{"city": "New York", "days": 2}'),
        ("get_weather a/b.c", '{"city": "a/b.c"}'),
        ('{"tool_name": "get_weather", "parameters": {"city": "Rome"}}', '{"city": "Rome"}'),
        ('{"get_weather": {"city": "Rome"}}', '{"city": "Rome"}'),
    ],
)  # fmt: skip
def test_reads(body: str, arguments: str) -> None:
    labels = labels_of("chatml", is_bound=False)
    for items in cuts(list(f"So:\n<tool_call>{body}</tool_call>\n")):
        assert parse(labels, items) == Parsed("So:", calls=(Call(_WEATHER, arguments),))


@pytest.mark.parametrize(
    "body",
    [
        "",
        "get_weather is a tool",
        '{"name": "other", "arguments": {}}',
        '{"name": "get_weather", "arguments": [1]}',
        '{"name": "get_weather", "arguments": "Rome"}',
        '{"name": "get_weather", "arguments": "{} x"}',
        "{'name': 'get_weather', 'arguments': {'city': 'it's'}}",
        '{"name": "get_weather", "arguments": {"city": "Rome"}',
        '{"name": "get_weather", "arguments": {"city": "Rome",}}',
        '{"name": "get_weather", "arguments": {"days": 01}}',
        '{"name": "get_weather", "arguments": {"days": NaN}}',
        '{"name": 3}',
        '{"name" "get_weather"}',
        r'{"name": "get_weather", "arguments": {"city": "\x41"}}',
        "[{'name': 'get_weather'} {'name': 'get_weather'}]",
        "get_weather(days=1 city=2)",
        "get_weather city=",
        '{"name": "get_weather", "arguments": {}} and more',
        'get_weather("Rome", city="Rome")',
        'get_weather(days=1, "Rome")',
        "get_weather(1, 2, 3, 4, 5, 6)",
        "get_weather(city=Rome)",
        "get_weather --city Rome Paris",
        "note(1)",
        "[1]",
        "[" * 2000 + "]" * 2000,
        '{"a":' * 2000,
    ],
)
def test_what_is_no_call_is_text(body: str) -> None:
    output = f"<tool_call>{body}</tool_call> Bye"
    labels = labels_of("chatml", is_bound=False)
    assert parse(labels, [output]) == parse(labels, list(output)) == Parsed(output)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"name": "note", "input": "a\\nb"}', "a\nb"),
        ('{"name": "note", "arguments": {"input": "a"}}', "a"),
        ('{"name": "note", "arguments": "{}"}', "{}"),
        ('note("a")', "a"),
        ("note --input 3", "3"),
    ],
)
def test_custom_tools_take_text(body: str, text: str) -> None:
    labels = labels_of("chatml", is_bound=False)
    assert parse(labels, [f"<tool_call>{body}</tool_call>"]) == Parsed(calls=(Call("note", text),))


# A tool's own grammar puts text where nothing tells its end, and escapes come out as characters.
_SAME = [each for each in RECORDINGS if "grammar" not in each.name and each.name not in {"hard strings", "python"}]


@pytest.mark.parametrize("are_tokens", [False, True], ids=["text", "tokens"])
@pytest.mark.parametrize("recording", _SAME, ids=lambda recording: recording.name)
def test_reads_what_a_grammar_would_have_held_to_its_syntax(recording: Recording, are_tokens: bool) -> None:
    labels = recording.labels(are_markers_tokens=are_tokens, is_bound=False)
    for items in cuts(itemise(recording.output, labels)):
        assert parse(labels, items) == recording.expected


@pytest.mark.parametrize(
    ("family", "output", "expected"),
    [
        ("qwen3_coder", "<tool_call><function=get_weather> <parameter=days> 3 </parameter></function></tool_call>",
         Call(_WEATHER, '{"days": 3}')),
        ("qwen3_coder", '<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call>', Call(_WEATHER, "{}")),
        ("qwen3_coder", "<tool_call><function=get_weather> <parameter=days>3</parameter><parameter=days>4</parameter>"
         "</function></tool_call>", Call(_WEATHER, '{"days": 3}')),
        ("glm45", "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>", ROME),
        ("gemma3", "```tool_code\nget_weather('Rome')\n```", ROME),
        ("mistral", '[TOOL_CALLS] [{"name":"get_weather","arguments":{"city":"Rome"}}]', ROME),
        ("mistral_args", '[TOOL_CALLS]get_weather {"city": "Rome"}', ROME),
        ("llama3", '\n{"name": "get_weather", "parameters":{"city":"Rome"}}', ROME),
        ("deepseek_r1", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
         "get_weather ```json{'city': 'Rome'}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", ROME),
    ],
)  # fmt: skip
def test_other_spacing(family: str, output: str, expected: Call) -> None:
    labels = labels_of(family, is_bound=False)
    for items in cuts(list(output)):
        assert parse(labels, items) == Parsed(calls=(expected,))


def test_the_end_of_the_answer_ends_a_call() -> None:
    labels = labels_of("chatml", is_bound=False)
    output = hermes(PARIS).removesuffix("</tool_call>")
    assert parse(labels, list(output)) == Parsed(calls=(PARIS,))


@pytest.mark.parametrize(
    "output",
    [
        "<tool_call>get_weather\n<arg_key>city</arg_key>\nRome</arg_value></tool_call>",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</tool_call>",
    ],
)
def test_broken_tags_are_text(output: str) -> None:
    assert parse(labels_of("glm45", is_bound=False), list(output)) == Parsed(output)


@pytest.mark.parametrize("output", [hermes(PARIS)[:-20], "<tool_call>get_weather", "<tool_call>get_weather --days 1"])
def test_cut_off_it_is_text(output: str) -> None:
    labels = labels_of("chatml", is_bound=False)
    assert parse(labels, list(output), is_cut=True) == Parsed(output)


def test_cut_off_behind_its_last_bracket_it_is_a_call() -> None:
    labels = labels_of("chatml", is_bound=False)
    assert parse(labels, list(hermes(PARIS).removesuffix("\n</tool_call>")), is_cut=True) == Parsed(calls=(PARIS,))


def test_a_mention_before_a_call_is_text() -> None:
    labels = labels_of("chatml", is_bound=False)
    output = f"Write <tool_call> first. {hermes(PARIS)}"
    for items in cuts(list(output)):
        assert parse(labels, items) == Parsed("Write <tool_call> first.", calls=(PARIS,))


def test_space_before_an_object_is_no_bound_call() -> None:
    labels = labels_of("llama3")
    assert parse(labels, list('\n{"name": "get_weather", "x": 1')) == Parsed('\n{"name": "get_weather", "x": 1')


@pytest.mark.parametrize(("body", "content"), [("not json", "not json"), ("{'city': 'Rome'}", "")])
def test_harmony(body: str, content: str) -> None:
    labels = labels_of("harmony", is_bound=False)
    output = f"<|channel|>commentary to=functions.get_weather<|message|>{body}"
    for items in cuts(list(output)):
        assert parse(labels, items) == (Parsed(content) if content else Parsed(calls=(ROME,)))


def test_positions_fill_what_is_required_first() -> None:
    copy = Tool(
        "copy",
        parameters={
            "type": "object",
            "properties": {"mode": {"type": "string"}, "source": {"type": "string"}, "target": {"type": "string"}},
            "required": ["source", "target"],
        },
    )
    for text in ('copy("a/b", "c")', "copy a/b c"):
        (call,) = read_calls(text, HERMES_CALLS, {"copy": copy})
        assert call.arguments == '{"source": "a/b", "target": "c"}'
    assert read_calls("copy a b c", HERMES_CALLS, {"copy": copy}) == []
    (call,) = read_calls('copy("a", "b", "fast")', HERMES_CALLS, {"copy": copy})
    assert call.arguments == '{"source": "a", "target": "b", "mode": "fast"}'
