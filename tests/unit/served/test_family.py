"""The chat template that a model is given: its own, or what the settings say."""

from pathlib import Path

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.formats import by_name
from proxy_inference_engine.interaction import Interaction, Role, Tool, ToolCall
from proxy_inference_engine.prompt.render import PromptRenderer
from proxy_inference_engine.runners.fake import ByteTokenizer
from proxy_inference_engine.served.family import fit_family

OWN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
BROKEN = "{{ raise_exception('Never.') }}"


def test_a_model_has_its_own_template() -> None:
    fitted = fit_family(Config(), ByteTokenizer(), OWN)
    assert (fitted.template.source, fitted.format.name) == (OWN, "chatml")


def test_a_family_can_be_named_instead() -> None:
    fitted = fit_family(Config(chat_template="llama3"), ByteTokenizer(), BROKEN)
    assert fitted.format is by_name("llama3")
    assert fitted.template.source == by_name("llama3").template


def test_a_file_can_be_given_instead(tmp_path: Path) -> None:
    path = tmp_path / "chat.jinja"
    path.write_text("<start_of_turn>{{ messages[0].content }}", encoding="utf-8")
    fitted = fit_family(Config(chat_template=str(path)), ByteTokenizer(), BROKEN)
    assert fitted.template.source.startswith("<start_of_turn>") and fitted.format.markers == by_name("gemma3").markers


@pytest.mark.parametrize("name", ["absent.jinja", "latin.jinja"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "latin.jinja").write_bytes(b"\xff\xfe{{")
    with pytest.raises(StartupError) as raised:
        fit_family(Config(chat_template=str(tmp_path / name)), ByteTokenizer(), OWN)
    assert name in raised.value.message and "chatml" in raised.value.message


def test_what_fails_is_refused_at_once() -> None:
    with pytest.raises(StartupError, match="the chat template fails: Never"):
        fit_family(Config(), ByteTokenizer(), BROKEN)


TOOL_USE = (
    "{% for t in tools %}<|tool|>{{ t.function.name }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.tool_calls %}{% for c in m.tool_calls %}<call>{{ c.function | tojson }}</call>{% endfor %}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}\n"
)


def test_a_template_for_tools_is_used_with_tools_alone() -> None:
    """As Command R and Hermes 2 Pro have one."""
    fitted = fit_family(Config(), ByteTokenizer(), OWN + "\n", tool_template=TOOL_USE)
    renderer = PromptRenderer(ByteTokenizer(), fitted.format, fitted.template)
    chat, tools = [Interaction.of(Role.USER, "Hi")], [Tool("get", "", {"type": "object", "properties": {}})]
    plain = PromptRenderer(ByteTokenizer(), by_name("chatml"), OWN)
    assert renderer.text(chat) == plain.text(chat) == "<|im_start|>user\nHi<|im_end|>"
    asked = "<|tool|>get<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert renderer.reads_tools and renderer.text(chat, tools=tools) == asked
    assert fitted.format.calls is not None and fitted.format.calls.opening == "<call>"
    called = Interaction.of(Role.ASSISTANT, "", tool_calls=(ToolCall("1", "get", "{}"),))
    past = renderer.text([*chat, called])  # nothing is offered any more
    assert '<|im_end|>\n<|im_start|>assistant\n<call>{"name": "get"' in past and "<|tool|>" not in past


@pytest.mark.parametrize("other", ["{% if %}", BROKEN, "{{ messages[0].content }}", ""])
def test_a_template_for_tools_that_fails_is_left_out(other: str) -> None:
    fitted = fit_family(Config(), ByteTokenizer(), OWN, tool_template=other)
    assert fitted.template.source == OWN


def test_a_template_for_tools_may_be_the_only_one() -> None:
    assert fit_family(Config(), ByteTokenizer(), None, tool_template=TOOL_USE).template.source == TOOL_USE
