"""One served model: asks in, one stream out; what is refused, under whose names, and before anything is submitted."""

from collections.abc import Sequence
from typing import Any

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.base import Item
from proxy_inference_engine.errors import ClientError, ContextLengthExceeded, InvalidRequest, QueueFull
from proxy_inference_engine.images import ImageLimits, ImageLoader
from proxy_inference_engine.interaction import Interaction, Role
from proxy_inference_engine.output.events import Ended, TextDelta
from proxy_inference_engine.runners.fake import IMAGE_TEMPLATE, MARKER, FakeImageEncoder, FakeRunner
from proxy_inference_engine.served.ask import Ask, ChatPrompt, LimitWishes, RawPrompt, SamplingWishes
from proxy_inference_engine.served.images import image_content
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.served.stream import AnswerStream
from proxy_inference_engine.state_machine.demand import Demand, InvalidDemand, JsonSchema, ListedText
from proxy_inference_engine.types import Prefilled
from tests.images import red
from tests.unit.served.scripted import ScriptedEngine, served, text_items, whole
from tests.unit.served.turns import user

CONTEXT = 1000  # of a scripted engine


def chat(*texts: str, **fields: Any) -> Ask:
    """One turn of the user for each text."""
    return Ask("chat", "local", ChatPrompt([user(text) for text in texts]), **fields)


def raw(content: str | Sequence[int], **fields: Any) -> Ask:
    return Ask("raw", "local", RawPrompt(content), **fields)


async def texts_of(stream: AnswerStream) -> dict[int, str]:
    texts: dict[int, str] = {}
    async for step in stream.steps():
        for choice, event in step:
            if isinstance(event, TextDelta):
                texts[choice] = texts.get(choice, "") + event.text
    return texts


# A family's own stop strings

SERVICES = "services:\n  web:\nuser: root\nports: 80"
GRANITE = (  # no family's markers are in it
    "{% for message in messages %}<|start_of_role|>{{ message.role }}<|end_of_role|>{{ message.content }}"
    "<|end_of_text|>\n{% endfor %}{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"
)


async def answered(template: str, demand: Demand) -> tuple[str, str | None]:
    """What is left of a text in which a line begins with `user:`, and what cut it."""
    engine = ScriptedEngine([whole(SERVICES)], runner=FakeRunner(chat_template=template))
    stream = await served(engine).answer(chat("hi", demand=demand))
    events = [event for step in [step async for step in stream.steps()] for _, event in step]
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    (end,) = [event for event in events if isinstance(event, Ended)]
    return text, end.stop_str


@pytest.mark.parametrize(
    ("template", "demand", "text", "stop"),
    [
        ("", Demand(), "services:\n  web:", "\nuser:"),  # a model that was taught no chat runs on past its turn
        ("", Demand(output=ListedText((SERVICES, "no"))), SERVICES, None),
        (GRANITE, Demand(), SERVICES, None),
        (GRANITE, Demand(output=ListedText((SERVICES, "no"))), SERVICES, None),
    ],
)
async def test_a_familys_stop_cuts_only_free_text_between_lines_of_ours(
    template: str, demand: Demand, text: str, stop: str | None
) -> None:
    """A template that matches no family is the plain one's, whose stops then cut whatever looked like a turn."""
    assert await answered(template, demand) == (text, stop)


# Several asks


async def test_two_asks_are_one_answer_each_with_its_own_ends() -> None:
    engine = ScriptedEngine([whole("one xtwo")], [whole("three ytwo x")])
    first = chat("hi", limits=LimitWishes(5, stop=["x"]))
    second = raw([1, 2, 3], limits=LimitWishes(7, stop=["y"]))
    stream = await served(engine).answer(first, second)
    assert [request.id for request in engine.requests] == ["chat", "raw"]
    assert [request.limits.max_tokens for request in stream.requests] == [5, 7]
    assert await texts_of(stream) == {0: "one ", 1: "three "}
    assert stream.counts.are_final and stream.counts.num_ended == 2
    assert stream.counts.num_prompt_tokens == len(engine.requests[0].prompt_ids) + 3


async def test_choices_are_numbered_through_all_asks() -> None:
    engine = ScriptedEngine([whole("a"), whole("b", 1)], [whole("d", 1), whole("c")])
    stream = await served(engine).answer(raw("x", num_choices=2), raw("y", num_choices=2))
    assert await texts_of(stream) == {0: "a", 1: "b", 2: "c", 3: "d"}


async def test_counts_are_up_to_date_with_the_step_that_was_read() -> None:
    engine = ScriptedEngine([[Item(0, Prefilled(2)), *text_items("a")], whole("")[1:]], [0.01, whole("bc")])
    stream = await served(engine).answer(raw("x"), raw("yz"))
    seen = []
    async for step in stream.steps():
        ends = sum(isinstance(event, Ended) for _, event in step)
        seen.append((ends, stream.counts.num_ended, stream.counts.num_cached_tokens, stream.counts.num_tokens))
    assert seen == [(0, 0, 2, 0), (1, 1, 2, 1), (1, 2, 2, 3)]


async def test_what_does_not_bind_is_told_once() -> None:
    loose = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    demand = Demand(output=JsonSchema(loose, is_strict=False))
    engine = ScriptedEngine([whole("{}")], [whole("{}")])
    stream = await served(engine).answer(chat("a", demand=demand), chat("b", demand=demand))
    stream.cancel()
    assert stream.relaxed == ["/properties/a:uniqueItems"]


@pytest.mark.parametrize("wrong", [raw([1, 2, 260]), raw("x" * CONTEXT), chat("x", limits=LimitWishes(1, 2))])
async def test_all_are_checked_before_any_is_submitted(wrong: Ask) -> None:
    engine = ScriptedEngine([whole("a")], [whole("b")])
    with pytest.raises(ClientError):
        await served(engine).answer(chat("fine"), wrong)
    assert engine.streams == []


async def test_all_are_submitted_or_none() -> None:
    engine = ScriptedEngine([whole("a")])
    with pytest.raises(QueueFull):
        await served(engine).answer(chat("a"), chat("b"))
    assert [stream.cancelled for stream in engine.streams] == [[None]]


# Who holds a stream


async def test_what_is_raised_while_a_stream_is_held_cancels_it() -> None:
    engine = ScriptedEngine([whole("a")], [whole("b")])
    with pytest.raises(ZeroDivisionError), await served(engine).answer(chat("a"), chat("b")):
        raise ZeroDivisionError
    assert [stream.cancelled for stream in engine.streams] == [[None], [None]]


async def test_who_leaves_in_peace_has_handed_it_on() -> None:
    engine = ScriptedEngine([whole("a")])
    with await served(engine).answer(chat("a")) as stream:
        pass
    assert engine.streams[0].cancelled == []
    assert await texts_of(stream) == {0: "a"}


# Names


def as_input(param: str) -> str:
    return {"messages": "input", "min_tokens": "least"}.get(param, param)


LONG = "x" * CONTEXT


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (chat(LONG, name_param=as_input), "input"),
        (raw(LONG, name_param=as_input), "input"),
        (raw([], name_param=as_input), "input"),
        (raw([260], name_param=as_input), "input"),
        (raw(LONG), "messages"),
        (chat("x", limits=LimitWishes(1, 2), name_param=as_input), "least"),
        (chat("x", limits=LimitWishes(stop_token_ids=[260]), name_param=as_input), "stop_token_ids"),
        (chat("x", sampling=SamplingWishes(logit_bias={260: 1.0}), name_param=as_input), "logit_bias"),
        (Ask("i", "t", RawPrompt("x", suffix="y"), name_param=lambda param: f"[{param}]"), "[suffix]"),
    ],
)
def test_what_is_refused_has_the_name_that_whoever_asks_has_for_it(asked: Ask, param: str) -> None:
    with pytest.raises(ClientError) as caught:
        served().prepare(asked)
    assert caught.value.param == param
    assert "'messages'" not in caught.value.message or param == "messages"
    assert f"'{param}'" in caught.value.message or isinstance(caught.value, ContextLengthExceeded)


def test_a_demand_that_cannot_be_met_is_named_by_whoever_asks() -> None:
    def name(error: InvalidDemand, demand: Demand) -> str:
        assert isinstance(demand.output, JsonSchema) and error.subject == "output"
        return "text.format"

    with pytest.raises(InvalidRequest, match=r"Invalid value for 'text\.format': ") as caught:
        served().prepare(chat("x", demand=Demand(output=JsonSchema({"type": 5})), name_demand=name))
    assert caught.value.param == "text.format"


async def test_counting_names_and_refuses_alike_but_may_be_longer_than_the_context() -> None:
    model = served()
    assert len((await model.count(raw("x" * 1500))).ids) == 1500
    assert len((await model.count(chat("hi"))).ids) == len(model.prepare(chat("hi")).request.prompt_ids)
    with pytest.raises(InvalidRequest) as caught:
        await model.count(raw([260], name_param=as_input))
    assert caught.value.param == "input"


# Room


def shortening(*texts: str, system: str = "", **fields: Any) -> Ask:
    turns = [*([Interaction.of(Role.SYSTEM, system)] if system else []), *map(user, texts)]
    return Ask("id", "local", ChatPrompt(turns, can_shorten=True), **fields)


def kept(model: ServedModel, asked: Ask) -> str:
    """The first letters of the texts that are in the prompt."""
    prompt = bytes(id_ for id_ in model.prepare(asked).request.prompt_ids if id_ < 256).decode()
    return "".join(letter for letter in "sabcdef" if letter * 50 in prompt)


def test_a_conversation_that_fits_stays_whole() -> None:
    assert kept(served(), shortening("a" * 200, "b" * 200, system="s" * 50)) == "sab"


def test_the_oldest_turns_go_where_that_is_allowed() -> None:
    texts = [letter * 400 for letter in "abcd"]
    assert kept(served(), shortening(*texts, system="s" * 50)) == "sd"  # an eighth is left for the answer
    assert kept(served(), shortening(*texts, limits=LimitWishes(20))) == "cd"
    with pytest.raises(ContextLengthExceeded):
        served().prepare(chat(*texts))


def test_what_cannot_be_shortened_is_refused_by_name() -> None:
    with pytest.raises(ContextLengthExceeded) as caught:
        served().prepare(shortening("a" * 400, "b" * 1000, name_param=as_input))
    assert caught.value.param == "input"


async def test_with_too_many_images_the_oldest_turns_go_too() -> None:
    runner = FakeRunner(chat_template=IMAGE_TEMPLATE, defined_tokens=(MARKER,), image_encoder=FakeImageEncoder())
    engine = ScriptedEngine([whole("a")], runner=runner)
    loader = ImageLoader(ImageLimits(max_images=1), None)  # and eight with those of earlier turns
    turns = []
    for number in range(10):
        turns += [Interaction(Role.USER, (image_content(red(16, 16), None, f"input[{number}]"),))]
        turns += [Interaction.of(Role.ASSISTANT, "Red.")]
    model = ServedModel.of(engine, Config(), images=loader)
    stream = await model.answer(Ask("id", "local", ChatPrompt([*turns, user("And?")], can_shorten=True)))
    stream.cancel()
    assert len(stream.requests[0].images) == 8
