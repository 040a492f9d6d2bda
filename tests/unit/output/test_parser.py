"""Labels do not depend on how the text was cut; markers never leak; a cut-off answer shows a beginning."""

import itertools
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy_inference_engine.formats import by_name
from proxy_inference_engine.formats.base import Labels
from proxy_inference_engine.formats.convention import write_calls
from proxy_inference_engine.interaction import ToolCall
from proxy_inference_engine.output.pieces import VisibleText
from tests.unit.output.parsing import (
    TOOLS,
    Call,
    Parsed,
    Recording,
    cuts,
    itemise,
    join,
    labels_of,
    parse,
    pieces_of,
)
from tests.unit.output.recordings import PARIS, RECORDINGS, hermes

recordings = pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
both = pytest.mark.parametrize("are_tokens", [False, True], ids=["text", "tokens"])
FAMILIES = ("chatml", "qwen3", "qwen3_coder", "glm45", "gemma3", "llama3", "mistral", "mistral_args", "deepseek_r1")


@both
@recordings
def test_any_cut_means_the_same(recording: Recording, are_tokens: bool) -> None:
    labels = recording.labels(are_markers_tokens=are_tokens)
    for items in cuts(itemise(recording.output, labels)):
        assert parse(labels, items) == recording.expected, items


@both
@recordings
def test_arguments_are_one_json_text(recording: Recording, are_tokens: bool) -> None:
    labels = recording.labels(are_markers_tokens=are_tokens)
    for call in parse(labels, itemise(recording.output, labels)).calls:
        if TOOLS[call.name].kind == "function":
            assert isinstance(json.loads(call.arguments), dict)


@recordings
def test_content_says_where_it_comes_from(recording: Recording) -> None:
    for items in cuts(itemise(recording.output, recording.labels())):
        shown = [piece for piece in pieces_of(recording.labels(), items) if isinstance(piece, VisibleText)]
        assert [recording.output[piece.start : piece.end] for piece in shown] == [piece.text for piece in shown]
        assert all(first.end <= second.start for first, second in itertools.pairwise(shown))


def begins(part: str, whole: str, recording: Recording) -> bool:
    """Whether a part is a beginning, perhaps with space or a beginning of a marker after it."""
    if whole.startswith(part.rstrip()):
        return True
    format = by_name(recording.family)
    markers = [format.calls.opening, format.calls.optional_begin] if format.calls else []
    markers += [format.thinking.opening, format.thinking.closing] if format.thinking else []
    markers += [format.channels.end] if format.channels else []
    return any(
        part.endswith(marker[:length]) and whole.startswith(part[:-length].rstrip())
        for marker in markers
        for length in range(1, len(marker))
    )


@both
@recordings
def test_cut_off_anywhere_shows_a_beginning(recording: Recording, are_tokens: bool) -> None:
    labels = recording.labels(are_markers_tokens=are_tokens)
    items = itemise(recording.output, labels)
    whole = recording.expected
    for place in range(len(items)):
        part = parse(labels, join(items[:place]), is_cut=True)
        assert part == parse(labels, items[:place], is_cut=True)
        assert begins(part.content, whole.content, recording), part
        # No grammar binds a call in reasoning whose opening is text: until it is complete it is reasoning.
        assert begins(part.reasoning, whole.reasoning, recording) or part.reasoning in recording.output, part
        assert [call.name for call in part.calls] == [call.name for call in whole.calls[: len(part.calls)]]
        for call, full in zip(part.calls, whole.calls, strict=False):
            assert full.arguments.startswith(call.arguments), part
            assert not call.is_complete or call == full
        assert all(call.is_complete for call in part.calls[:-1])


ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "city": st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
        "days": st.integers(),
        "is_exact": st.booleans(),
        "options": st.dictionaries(
            st.text(max_size=4),
            st.recursive(
                st.one_of(
                    st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)
                ),
                lambda inner: st.lists(inner, max_size=3),
                max_leaves=4,
            ),
            max_size=3,
        ),
    },
)


@pytest.mark.parametrize("family", FAMILIES)
@settings(deadline=None, max_examples=60)
@given(st.lists(ARGUMENTS, min_size=1, max_size=2), st.booleans(), st.booleans())
def test_reads_what_the_family_writes(
    family: str, many: list[dict[str, object]], are_tokens: bool, is_bound: bool
) -> None:
    syntax = by_name(family).calls
    assert syntax is not None
    calls = [ToolCall(str(index), "get_weather", json.dumps(each)) for index, each in enumerate(many)]
    output = write_calls(syntax, calls, tuple(TOOLS.values()))
    labels = labels_of(family, are_markers_tokens=are_tokens, is_bound=is_bound)
    parsed = parse(labels, itemise(output, labels))
    assert (parsed.content, parsed.reasoning) == ("", "")
    assert [json.loads(call.arguments) for call in parsed.calls] == many
    assert all(call.is_complete and call.name == "get_weather" for call in parsed.calls)


THINKS = [
    ("<think>\nHm.\n</think>\n\nHi", "Hi", "Hm.", False),
    (" \n<think>Hm.</think>Hi", "Hi", "Hm.", False),
    ("Hm.\n</think>\n\nHi", "Hi", "Hm.", True),
    ("Hm. more", "", "Hm. more", True),  # never closed
    ("<think>Hm. </think>\n\n", "", "Hm.", False),  # nothing follows
    ("<think>\n\n</think>\n\nHi", "Hi", "", False),
    ("BEGIN `<think>` END", "BEGIN `<think>` END", "", False),
    ("Say <think>x</think> to think.", "Say <think>x</think> to think.", "", False),
    ("<think>One</think>\n<think>Two</think>Hi", "Hi", "One\n\nTwo", False),
    ("<think>a</think>Hi <think>b</think>", "Hi <think>b</think>", "a", False),
    ("</think>\n\nHi", "Hi", "", False),  # the prompt had closed the block
    ("<think>a <think> b</think>Hi", "Hi", "a <think> b", False),
    ("<thin air", "<thin air", "", False),
    ("  Hi ", "  Hi ", "", False),
    ("<think>a\n\n b </think> Hi ", "Hi ", "a\n\n b", False),
]


@both
@pytest.mark.parametrize("has_calls", [False, True])
@pytest.mark.parametrize(("output", "content", "reasoning", "is_open"), THINKS)
def test_reasoning(output: str, content: str, reasoning: str, is_open: bool, has_calls: bool, are_tokens: bool) -> None:
    labels = labels_of("qwen3", has_calls=has_calls, starts_in_reasoning=is_open, are_markers_tokens=are_tokens)
    for items in cuts(itemise(output, labels)):
        assert parse(labels, items) == Parsed(content, reasoning)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("<think>x</think>Hi", Parsed("<think>x</think>Hi")),
        (hermes(PARIS), Parsed(hermes(PARIS))),
    ],
)
def test_the_spelling_of_a_token_is_text(output: str, expected: Parsed) -> None:
    for items in cuts(list(output)):
        assert parse(labels_of("qwen3", are_markers_tokens=True), items) == expected


def test_only_the_token_closes_reasoning() -> None:
    labels = labels_of("qwen3", are_markers_tokens=True)
    items = [*itemise("<think>", labels), *"say </think> and", *itemise("</think>Hi", labels)]
    for cut in cuts(items):
        assert parse(labels, cut) == Parsed("Hi", "say </think> and")


@pytest.mark.parametrize(("output", "reasoning"), [("thought\nHm", "Hm"), ("thought", "thought"), ("think", "think")])
def test_a_header_says_nothing(output: str, reasoning: str) -> None:
    thinking = by_name("qwen3").thinking
    assert thinking is not None
    labels = Labels(thinking=type(thinking)(header="thought\n"), starts_in_reasoning=True)
    for items in cuts(list(output + "</think>Hi")):
        assert parse(labels, items) == Parsed("Hi", reasoning)


@pytest.mark.parametrize(
    ("output", "content"),
    [
        ("see <tool_call", "see <tool_call"),
        ("see <tool_call> there", "see <tool_call> there"),
        ('<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>',) * 2,
        ("<tool_call><tool_call>\n<",) * 2,
    ],
)
def test_what_only_looks_like_a_call_is_text(output: str, content: str) -> None:
    for items in cuts(list(output)):
        assert parse(labels_of("chatml"), items) == Parsed(content)


def test_text_and_another_call_after_a_call() -> None:
    output = f"A {hermes(PARIS)}\n\nB\n{hermes(PARIS)}\n"
    for items in cuts(list(output)):
        assert parse(labels_of("chatml"), items) == Parsed("A\n\nB", calls=(PARIS, PARIS))


@pytest.mark.parametrize(
    "mention",
    [
        "<tool_call>",
        "<tool_call> and </tool_call>",
        '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "get_weather", "arguments": {...}}\n</tool_call>',
        '<tool_call>\n{"name": "get_weather", "arguments": {',
    ],
)
def test_mentioning_a_call_does_not_end_reasoning(mention: str) -> None:
    for items in cuts(list(f"<think>I could write {mention} here.</think>Hi")):
        assert parse(labels_of("qwen3"), items) == Parsed("Hi", f"I could write {mention} here.")


def test_a_call_in_reasoning_may_hold_any_marker() -> None:
    value = "a<tool_call> b</tool_call> c</think> d"
    output = f"<think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>"
    for items in cuts(list(output)):
        assert parse(labels_of("glm45"), items) == Parsed(calls=(Call("get_weather", json.dumps({"city": value})),))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("<|channel|>analysis<|message|>Hm<|channel|>final<|message|>x", Parsed("x", "Hm")),
        ("<|channel|>analysis<|message|>Hm<|start|>assistant<|channel|>final<|message|>x", Parsed("x", "Hm")),
        ("<|channel|>final<|message|>a<|message|>b<|constrain|>c", Parsed("abc")),
        ("<|channel|>final<|message|>a<|end|><|start|>user<|message|>b", Parsed("ab")),
        ("<|message|>a", Parsed("a")),
    ],
)
def test_messages_without_an_end(output: str, expected: Parsed) -> None:
    labels = labels_of("harmony", are_markers_tokens=True)
    for items in cuts(itemise(output, labels)):
        assert parse(labels, items) == expected


@pytest.mark.parametrize("place", range(len('{"input": "') + 1, len(r'{"input": "a\u00e9\ud83d\ude00\n')))
def test_no_half_escape_is_shown(place: int) -> None:
    output = '<tool_call>\n{"name": "note", "arguments": ' + r'{"input": "a\u00e9\ud83d\ude00\n'[:place]
    (call,) = parse(labels_of("chatml"), list(output), is_cut=True).calls
    assert "aé😀\n".startswith(call.arguments)


@pytest.mark.parametrize(
    ("escaped", "text"),
    [(r"\ud83d", "\ufffd"), (r"\ude00x", "\ufffdx"), (r"\ud83d\u0041", "\ufffdA"), (r"\/\b", "/\b")],
)
def test_lone_halves_are_no_characters(escaped: str, text: str) -> None:
    output = hermes(Call("note", f'{{"input": "{escaped}"}}'))
    for items in cuts(list(output)):
        assert parse(labels_of("chatml"), items) == Parsed(calls=(Call("note", text),))


OPEN_CALL = '<tool_call>\n{"name": "get_weather", "arguments": '


@pytest.mark.parametrize("is_bound", [True, False])
@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize(
    "output",
    [
        "<" * 100_000,
        "{" * 100_000,
        " " * 100_000,
        "<tool_call>" * 9_000,
        "</think>" * 12_000,
        OPEN_CALL + "{" * 100_000,
        OPEN_CALL + '{"city": "' + "</tool_call>" * 8_000,
        OPEN_CALL + '{"city": "' + "\\" * 100_000,
        "<tool_call>\n" + "get_weather(" * 8_000 + "</tool_call>",
        (OPEN_CALL + "{") * 2_000,
        (OPEN_CALL + "{") * 1_000 + "}" * 2_000,
    ],
    ids=lambda output: output[:60].strip()[-20:],
)
def test_work_is_linear(output: str, is_open: bool, is_bound: bool) -> None:
    labels = labels_of("qwen3", starts_in_reasoning=is_open, is_bound=is_bound)
    begun = time.process_time()
    pieces_of(labels, [output])
    whole = time.process_time()
    pieces_of(labels, [output[at : at + 3] for at in range(0, len(output), 3)])
    assert whole - begun < 5
    assert time.process_time() - whole < 30
