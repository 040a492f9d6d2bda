"""Images in prompts: where their tokens go, and that no text is ever taken for one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.formats import by_name
from proxy_inference_engine.interaction import Content, ContentType, Interaction, Role, ToolCall
from proxy_inference_engine.prompt import Prompt, PromptRenderer
from proxy_inference_engine.prompt.images import IMAGE, PARAM
from proxy_inference_engine.runners.fake import IMAGE_TEMPLATE, MARKER, ByteTokenizer, FakeImageEncoder
from proxy_inference_engine.types import Image

TOKEN = 260
GEMMA = (
    "{{ bos_token }}{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] | trim }}"
    "{% elif message['content'] is iterable %}{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}{{ '<|image|>' }}"
    "{% elif item['type'] == 'text' %}{{ item['text'] | trim }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
)


def make_image(width: int, height: int = 16, param: str = "messages[0].content[1]") -> Content:
    pixels = np.full((height, width, 3), width % 256, np.uint8)
    return Content(ContentType.IMAGE, data={IMAGE: Image(bytes(32), pixels), PARAM: param})


def renderer(template: str = IMAGE_TEMPLATE, *, name: str = "chatml", has_bos: bool = False) -> PromptRenderer:
    tokenizer = ByteTokenizer(has_bos=has_bos, defined=[MARKER])
    return PromptRenderer(tokenizer, by_name(name), template, image_encoder=FakeImageEncoder())


def user(*parts: str | Content) -> Interaction:
    return Interaction(Role.USER, tuple(Content.of(part) if isinstance(part, str) else part for part in parts))


def shown(prompt: Prompt) -> str:
    """The ids as text, every token of an image as #."""
    names = {257: "<|im_start|>", 258: "<|im_end|>", 256: "<|bos|>", TOKEN: "#"}
    return b"".join(names.get(each, chr(each)).encode("latin-1") for each in prompt.ids).decode()


def spans(prompt: Prompt) -> list[tuple[int, int, int]]:
    return [(span.start, span.num_tokens, span.image.pixels.shape[1]) for span in prompt.images]


@pytest.mark.parametrize("has_bos", [False, True])
def test_markers_become_images_in_order_with_the_text(has_bos: bool) -> None:
    prompt = renderer(has_bos=has_bos).chat([user("a", make_image(16), "b", make_image(40), make_image(1)), user("c")])
    start = "<|bos|>" if has_bos else ""
    first, second = "<|im_start|>user\na[#]b[###][#]<|im_end|>\n", "<|im_start|>user\nc<|im_end|>\n"
    assert shown(prompt) == start + first + second + "<|im_start|>assistant\n"
    assert [num for _, num, _ in spans(prompt)] == [1, 3, 1] and [size for *_, size in spans(prompt)] == [16, 40, 1]
    for start_, num_tokens, _ in spans(prompt):
        assert set(prompt.ids[start_ : start_ + num_tokens]) == {TOKEN} and prompt.ids[start_ - 1] == ord("[")
    assert sum(num for _, num, _ in spans(prompt)) == prompt.ids.count(TOKEN)
    assert prompt.text.count(MARKER) == 3


def test_texts_beside_each_other_are_joined_as_without_images() -> None:
    assert shown(renderer().chat([user("a", "b", make_image(16), "c", "d")])).split("\n", 1)[1] == (
        "a\nb[#]c\nd<|im_end|>\n<|im_start|>assistant\n"
    )


def test_what_the_model_wants_around_an_image_joins_the_text_beside_it() -> None:
    """What is cut into tokens is one text: a newline of the template, what a person wrote, and ours."""
    asked: list[str] = []

    class Listening(ByteTokenizer):
        def encode(self, text: str) -> list[int]:
            asked.append(text)
            return super().encode(text)

    tokenizer = Listening(defined=[MARKER])
    image_encoder = FakeImageEncoder(before="(", after=")")
    prompt = PromptRenderer(tokenizer, by_name("chatml"), IMAGE_TEMPLATE, image_encoder=image_encoder).chat(
        [user(make_image(16), make_image(16), f"a{MARKER}", make_image(16)), user("b")]
    )
    assert shown(prompt).startswith(f"<|im_start|>user\n([#])([#])a{MARKER}([#])<|im_end|>\n<|im_start|>user\nb")
    assert [prompt.ids[start] for start, *_ in spans(prompt)] == [TOKEN] * 3
    assert asked[-8:] == ["user\n(", ")(", f")a{MARKER}(", ")", "\n", "user\nb", "\n", "assistant\n"]


FRAGMENTS = [MARKER, "<|image", "|>", "<|im_end|>", "[", "]", "#", "a", " ", "\n", ""]
texts = st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("".join)


@given(parts=st.lists(texts | st.integers(1, 60), min_size=1, max_size=6), other=texts)
@pytest.mark.parametrize("template", [IMAGE_TEMPLATE, GEMMA])
def test_no_text_becomes_an_image(template: str, parts: list[str | int], other: str) -> None:
    """D12: a marker in a text is that text, with images and without."""
    content = [part if isinstance(part, str) else make_image(part) for part in parts]
    try:
        prompt = renderer(template).chat([user(other), user(*content)], add_generation_prompt=False)
    except InvalidRequest as error:  # the template cannot keep it apart: refused, never misread
        assert "control token" in error.message
        return
    widths = [part for part in parts if isinstance(part, int)]
    assert [size for *_, size in spans(prompt)] == widths
    assert prompt.ids.count(TOKEN) == sum(-(-width // 16) for width in widths)
    assert prompt.ids.count(258) == 2


def test_a_text_that_spells_the_marker_stays_text() -> None:
    prompt = renderer().chat([user(f"a{MARKER}", make_image(16), f"{MARKER}{MARKER}")])
    assert (
        shown(prompt).startswith(f"<|im_start|>user\na{MARKER}[#]{MARKER}{MARKER}<|im_end|>")
        and len(prompt.images) == 1
    )
    assert renderer().chat([user(MARKER)]).images == ()


@pytest.mark.parametrize(
    ("template", "turns"),
    [
        (
            "{% for m in messages %}{{ m.content if m.content is string else 'x' }}{% endfor %}",
            [user("a", make_image(16))],
        ),
        (IMAGE_TEMPLATE + MARKER, [user("a", make_image(16))]),
        (IMAGE_TEMPLATE + MARKER, [user("a")]),
        (IMAGE_TEMPLATE.replace(MARKER, MARKER * 2), [user("a", make_image(16))]),
    ],
)
def test_a_template_without_a_place_for_each_image_is_refused(template: str, turns: list[Interaction]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        renderer(template).chat(turns)
    assert caught.value.code == "unsupported_content" and caught.value.param in ("messages[0].content[1]", "messages")


def test_an_image_that_the_model_cannot_see_is_named() -> None:
    with pytest.raises(InvalidRequest) as caught:
        renderer().chat([user("a", make_image(16), make_image(10_000, 1000, "messages[0].content[2]"))])
    assert caught.value.param == "messages[0].content[2]" and caught.value.code == "invalid_image"
    assert caught.value.message == (
        "Invalid value for 'messages[0].content[2]': an image of 10000x1000 pixels is too large for this model."
    )


def test_other_parts_and_models_without_images() -> None:
    audio = Content(ContentType.AUDIO, data={})
    with pytest.raises(InvalidRequest, match="text and images only"):
        renderer().chat([user(audio)])
    blind = PromptRenderer(ByteTokenizer(), by_name("chatml"), IMAGE_TEMPLATE)
    with pytest.raises(InvalidRequest, match="text only") as caught:
        blind.chat([user(make_image(16))])
    assert caught.value.param == "messages[0].content[1]"


def test_the_text_of_a_chat_needs_no_pixels() -> None:
    unseen = Content(ContentType.IMAGE, data={"url": "x", PARAM: "p"})
    assert renderer().text([user("a", unseen)]).startswith(f"<|im_start|>user\na{MARKER}<|im_end|>")


def test_images_keep_their_order_where_turns_are_merged() -> None:
    """Gemma has no instructions, no tools and no two turns of one role."""
    call = Interaction(Role.ASSISTANT, (), {"tool_calls": (ToolCall("1", "look", "{}"),)})
    result = Interaction(Role.TOOL, (make_image(40), Content.of("r")), {"tool_call_id": "1", "name": "look"})
    turns = [
        Interaction.of("system", "S"),
        user(make_image(16), "a"),
        user("b", make_image(20)),
        user("c"),
        call,
        result,
    ]
    prompt = renderer(GEMMA, name="gemma3").chat([*turns, user(make_image(33))], add_generation_prompt=False)
    said = [turn.split("<|im_end|>")[0] for turn in shown(prompt).split("<|im_start|>")[1:]]
    assert said[0] == "user\nS[#]a\n\nb[##]c"
    assert said[2] == "user\n```tool_output[###]r\n```[###]"
    assert [size for *_, size in spans(prompt)] == [16, 20, 40, 33]


PARTS_ONLY = (
    "{% for message in messages %}<|im_start|>{{ message['role'] | capitalize }}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{ line['text'] }}"
    "{% elif line['type'] == 'image' %}{{ '<|image|>' }}{% endif %}{% endfor %}<|im_end|>{% endfor %}"
)


def test_a_template_that_reads_parts_only_gets_them_for_every_turn() -> None:
    turns = [Interaction.of("system", "S"), user("a", make_image(16)), Interaction.of("assistant", "b"), user("c")]
    prompt = renderer(PARTS_ONLY).chat(turns, add_generation_prompt=False)
    assert [turn.removesuffix("<|im_end|>") for turn in shown(prompt).split("<|im_start|>")[1:]] == [
        "SystemS",
        "Usera[#]",
        "Assistantb",
        "Userc",
    ]
    final = [user("a"), Interaction.of("assistant", "b ")]
    continued = renderer(PARTS_ONLY).chat(final, add_generation_prompt=False, continue_final=True)
    assert continued.text.endswith("<|im_start|>Assistantb ")
