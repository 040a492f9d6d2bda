"""Images of asks: loaded once, refused under the name that whoever asked has for them, or told of."""

from collections.abc import Mapping

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.images import ImageLimits, ImageLoader
from proxy_inference_engine.interaction import Content, ContentType, Interaction, Role
from proxy_inference_engine.runners.fake import IMAGE_TEMPLATE, MARKER, FakeImageEncoder, FakeRunner
from proxy_inference_engine.served.ask import Ask, ChatPrompt, ParamNamer, RawPrompt
from proxy_inference_engine.served.images import NOTE, describe_images, image_content, load_images
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.types import Image
from tests.images import blue, data_url, plain, red
from tests.unit.served.scripted import ScriptedEngine, served, whole
from tests.unit.served.turns import call, said, user

LOADER = ImageLoader(ImageLimits(max_images=2), None)
TOO_LARGE = data_url(plain(16 * 23, 16 * 23))  # for the fake model


def looking(*urls: str, role: Role = Role.USER, metadata: Mapping[str, object] | None = None) -> Interaction:
    parts = tuple(image_content(url, None, f"messages[0].content[{place}]") for place, url in enumerate(urls))
    return Interaction(role, (*parts, Content.of("What is it?")), metadata or {})


def ask(*turns: Interaction, name_param: ParamNamer = str) -> Ask:
    return Ask("id", "local", ChatPrompt(turns), name_param=name_param)


def placed(param: str) -> str:
    """A parameter as the second conversation of a body has it."""
    return param.replace("messages", "messages[1]", 1)


def images_of(asked: Ask) -> list[Image]:
    assert isinstance(asked.prompt, ChatPrompt)
    return [
        part.data["image"] for turn in asked.prompt.turns for part in turn.content if part.type is ContentType.IMAGE
    ]


def model_with_images(*answers: str) -> ServedModel:
    runner = FakeRunner(chat_template=IMAGE_TEMPLATE, defined_tokens=(MARKER,), image_encoder=FakeImageEncoder())
    return served(ScriptedEngine(*([whole(text)] for text in answers), runner=runner))


async def test_images_stand_where_their_urls_were_and_equal_ones_are_one() -> None:
    first, second, text = await load_images(
        [ask(looking(red(), blue())), ask(user("no image"), looking(red())), Ask("id", "local", RawPrompt("raw"))],
        ImageLoader(ImageLimits(), None),
    )
    (one, other), (same,) = images_of(first), images_of(second)
    assert one is same and one.digest != other.digest
    assert text.prompt == RawPrompt("raw")


@pytest.mark.parametrize("url", ["data:image/png;base64,AAAA", "https://a.example/a.png"])
async def test_one_that_cannot_be_loaded_is_named_as_its_ask_names_it(url: str) -> None:
    asks = [ask(looking(red())), ask(looking(blue(), url), name_param=placed)]
    with pytest.raises(InvalidRequest) as caught:
        await load_images(asks, LOADER)
    assert caught.value.param == "messages[1][0].content[1]"
    assert "'messages[1][0].content[1]'" in caught.value.message


async def test_too_many_new_ones_are_named_too() -> None:
    earlier = [looking(red(), red()), said("Red.")]
    await load_images([ask(*earlier, looking(red(), blue()))], LOADER)
    with pytest.raises(InvalidRequest) as caught:
        await load_images(
            [ask(looking(red()), name_param=placed), ask(looking(red(), red()), name_param=placed)], LOADER
        )
    assert (caught.value.param, caught.value.code) == ("messages[1][0].content[1]", "too_many_images")


async def test_one_that_the_model_cannot_take_is_named_so_in_the_message_too() -> None:
    model = model_with_images()
    with pytest.raises(InvalidRequest) as caught:
        await model.answer(ask(looking(red())), ask(looking(TOO_LARGE), name_param=placed))
    assert caught.value.param == "messages[1][0].content[0]"
    assert caught.value.message.startswith("Invalid value for 'messages[1][0].content[0]': an image of 368x368")


async def test_a_template_without_a_place_for_images_is_told_so_by_name() -> None:
    runner = FakeRunner(defined_tokens=(MARKER,), image_encoder=FakeImageEncoder())
    model = served(ScriptedEngine(runner=runner))
    with pytest.raises(InvalidRequest) as caught:
        await model.answer(ask(looking(red()), name_param=placed))
    assert caught.value.param == "messages[1][0].content[0]"
    assert caught.value.message.startswith("Invalid value for 'messages[1][0].content[0]': the chat template")


def test_a_model_without_images_refuses_them_by_name() -> None:
    with pytest.raises(InvalidRequest) as caught:
        describe_images([ask(user("hi")), ask(looking(red()), name_param=placed)])
    assert (caught.value.param, caught.value.code) == ("messages[1][0].content[0]", "unsupported_content")
    assert caught.value.message == "Invalid value for 'messages[1][0].content[0]': this model takes no images."


def test_in_the_result_of_a_tool_it_is_told_of_them() -> None:
    result = looking(red(), blue(), role=Role.TOOL, metadata={"tool_call_id": "1", "name": "look"})
    (first, second), skipped = describe_images([ask(user("hi")), ask(result, name_param=placed)])
    assert isinstance(first.prompt, ChatPrompt) and isinstance(second.prompt, ChatPrompt)
    assert [turn.text for turn in first.prompt.turns] == ["hi"] and not second.prompt.has_images
    assert second.prompt.turns[0].text == f"{NOTE}\n{NOTE}\nWhat is it?"
    assert [tuple(each) for each in skipped] == [(1, "messages[1][0].content[0]"), (1, "messages[1][0].content[1]")]


async def test_an_answer_says_which_images_were_skipped() -> None:
    engine = ScriptedEngine([whole("a")])
    result = looking(red(), role=Role.TOOL, metadata={"tool_call_id": "1", "name": "look"})
    stream = await served(engine).answer(ask(user("hi"), call("1"), result))
    stream.cancel()
    assert [each.param for each in stream.skipped_images] == ["messages[0].content[0]"]
