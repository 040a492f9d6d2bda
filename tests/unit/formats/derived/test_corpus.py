"""Every syntax of the corpus: read off its template, written, bound by a grammar and read back however it is cut."""

import json
from dataclasses import replace

import pytest

from proxy_inference_engine.formats.base import Labels
from proxy_inference_engine.interaction import Interaction, Role, Tool, ToolCall
from proxy_inference_engine.prompt.render import PromptRenderer
from proxy_inference_engine.runners.fake import ByteTokenizer
from proxy_inference_engine.state_machine.demand import Demand, ToolChoice
from proxy_inference_engine.state_machine.machine import MachineBuilder
from tests.unit.formats.derived.corpus import CORPUS, Written
from tests.unit.output.parsing import Call, Parsed, cuts, itemise, parse
from tests.unit.state_machine.vocabularies import PieceTokenizer, verdict

WEATHER = Tool(
    "get_weather",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "is_exact": {"type": "boolean"},
            "places": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        },
    },
)
PARIS = ToolCall("call00001", "get_weather", '{"city": "Paris", "days": 3}')
ROOM = ToolCall("call00002", "get_weather", '{"city": "a b"}')
RICH = ToolCall("call00001", "get_weather", '{"city": "x", "is_exact": true, "places": [{"name": "y, z"}, {}]}')
ASK = Interaction.of(Role.USER, "How is it?")


def labels(written: Written, *, has_tokens: bool = False, is_bound: bool = True) -> Labels:
    tokens = dict(enumerate(sorted(written.format.tokens), start=1000)) if has_tokens else {}
    return Labels(
        thinking=written.format.thinking,
        calls=written.syntax,
        tools={WEATHER.name: WEATHER},
        tokens=tokens,
        is_bound=is_bound,
    )


def rendered(written: Written, *calls: ToolCall, text: str = "", thought: str = "") -> str:
    """An answer as the template writes it."""
    renderer = PromptRenderer(ByteTokenizer(), written.format, written.fitted.template)
    turn = Interaction.of(Role.ASSISTANT, text, tool_calls=calls, reasoning_content=thought)
    whole = renderer.text([ASK, turn], tools=[WEATHER], add_generation_prompt=False)
    return whole.rpartition("<|role|>assistant<|text|>")[2].removesuffix("<|stop|>")


def meant(*calls: ToolCall) -> list[tuple[str, object]]:
    return [(call.name, json.loads(call.arguments)) for call in calls]


def read(parsed: Parsed) -> list[tuple[str, object]]:
    return [(call.name, json.loads(call.arguments)) for call in parsed.calls if call.is_complete]


@pytest.mark.parametrize("written", CORPUS, ids=str)
def test_the_syntax_is_read_off_the_template(written: Written) -> None:
    assert written.format.name == "derived"
    assert written.syntax.style is written.style
    assert written.format.reads_tools and written.format.reads_calls
    assert rendered(written, PARIS, ROOM) == written.calls


@pytest.mark.parametrize("has_tokens", [False, True])
@pytest.mark.parametrize("written", CORPUS, ids=str)
def test_calls_are_read_however_they_are_cut(written: Written, has_tokens: bool) -> None:
    subject = labels(written, has_tokens=has_tokens)
    for items in cuts(itemise(written.calls, subject)):
        parsed = parse(subject, items)
        assert read(parsed) == meant(PARIS, ROOM)
        assert parsed.content == "" and len(parsed.calls) == 2


@pytest.mark.parametrize("written", CORPUS, ids=str)
def test_an_answer_that_is_cut_off_has_no_half_call(written: Written) -> None:
    subject = labels(written)
    for end in range(len(written.calls)):
        parsed = parse(subject, [written.calls[:end]], is_cut=True)
        assert read(parsed) == meant(PARIS, ROOM)[: len(read(parsed))]
        assert all("get_weather" not in text for text in (parsed.content, parsed.reasoning))


@pytest.mark.parametrize("written", CORPUS, ids=str)
def test_calls_without_a_grammar_are_read_too(written: Written) -> None:
    parsed = parse(labels(written, is_bound=False), [written.calls])
    assert read(parsed) == meant(PARIS, ROOM)


@pytest.mark.parametrize("is_bound", [True, False])
@pytest.mark.parametrize("written", CORPUS, ids=str)
def test_an_argument_that_comes_again_is_left_out(written: Written, is_bound: bool) -> None:
    """Where no watch stands beside the grammar, or there is no grammar."""
    subject = labels(written, is_bound=is_bound)
    for items in cuts(itemise(written.calls.replace("days", "city"), subject)):
        first, second = parse(subject, items).calls
        assert json.loads(first.arguments, object_pairs_hook=list) == [("city", "Paris")]
        assert json.loads(second.arguments) == {"city": "a b"}


@pytest.mark.parametrize("written", CORPUS, ids=str)
def test_nested_values_survive(written: Written) -> None:
    assert read(parse(labels(written), [rendered(written, RICH)])) == meant(RICH)


@pytest.mark.parametrize("written", CORPUS, ids=str)
def test_text_and_reasoning_stay_what_they_are(written: Written) -> None:
    subject = labels(written)
    answer = rendered(written, thought="I look.", text="Here: [1] <b>")
    assert parse(subject, [answer]) == Parsed("Here: [1] <b>", "I look.")
    parsed = parse(subject, [rendered(written, PARIS, thought="I look.")])
    assert (parsed.reasoning, read(parsed)) == ("I look.", meant(PARIS))


@pytest.mark.parametrize("has_tokens", [False, True])
@pytest.mark.parametrize("written", CORPUS, ids=str)
def test_the_grammar_allows_what_the_template_writes(written: Written, has_tokens: bool) -> None:
    specials = sorted(written.format.tokens) if has_tokens else []
    builder = MachineBuilder(written.format, PieceTokenizer(specials=specials))
    demand = Demand(tools=(WEATHER,), tool_choice=ToolChoice("required"))
    try:
        assert verdict(builder, demand, written.calls) in ("ended", "complete")
        assert verdict(builder, demand, rendered(written, RICH)) in ("ended", "complete")
        assert verdict(builder, demand, written.calls.replace("get_weather", "get_whether")) == "refused"
        auto = replace(demand, tool_choice=ToolChoice("auto"))
        assert verdict(builder, auto, written.calls) in ("ended", "complete")
        assert verdict(builder, auto, "It is fine.") == "ended"
    finally:
        builder.close()


def test_a_call_is_a_call_only_from_its_opening_on() -> None:
    written = next(each for each in CORPUS if each.name == "the name in the id")
    parsed = parse(labels(written), ["functions.get_weather:0 is a tool"])
    assert parsed == Parsed("functions.get_weather:0 is a tool")
    broken = parse(labels(written), ["<|some|><|one|>functions.other:0<|given|>{}"])
    assert broken.calls == () and "functions.other:0" in broken.content
    assert Call("get_weather", "{}") not in broken.calls


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("[f(count='3', name='it\\'s', many=2)]", {"count": 3, "name": "it's", "many": 2}),
        ("[f(name=New York, count=3)]", {"name": "New York", "count": 3}),
        ('[f(many="2", count="soon")]', {"many": "2", "count": "soon"}),
        ("[f(flags=[True, None, 'a'])]", {"flags": [True, None, "a"]}),
    ],
)
def test_python_is_read_as_templates_write_it(text: str, arguments: object) -> None:
    """With single quotes or none, and numbers between quotes."""
    kinds = {"count": "integer", "name": "string", "many": ["integer", "null", "string"], "flags": "array"}
    properties = {name: {"type": kind} for name, kind in kinds.items()}
    tool = Tool("f", parameters={"type": "object", "properties": properties})
    written = next(each for each in CORPUS if each.name == "bare Python")
    for items in cuts(list(text)):
        (call,) = parse(Labels(calls=written.syntax, tools={"f": tool}), items).calls
        assert json.loads(call.arguments) == arguments
