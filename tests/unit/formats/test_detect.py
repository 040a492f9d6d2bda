import pytest

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.formats import FORMATS, by_name, detect

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
MISTRAL = "{{ bos_token }}[INST]{{ messages[0].content }}[/INST]"


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (CHATML, "chatml"),
        (CHATML + "{% if tools %}<tools></tools><tool_call>\n{}\n</tool_call>{% endif %}", "chatml"),
        (CHATML + "{{ m.content.split('</think>')[-1] }}<tool_call></tool_call>", "qwen3"),
        (CHATML + "{% if not enable_thinking %}<think>\n\n</think>{% endif %}", "qwen3"),
        (
            CHATML + "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
            "qwen3_coder",
        ),
        (CHATML + "<think></think><function=f>", "qwen3_coder"),
        ("[gMASK]<sop><|user|><think></think><tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>", "glm45"),
        ("<start_of_turn>user\n{{ messages[0].content }}<end_of_turn>", "gemma3"),
        ("<|start_header_id|>user<|end_header_id|>\n\n{{ messages[0].content }}<|eot_id|><|python_tag|>", "llama3"),
        (MISTRAL + "[TOOL_CALLS][{{ call | tojson }}]", "mistral"),
        (MISTRAL + "[TOOL_CALLS]{{ name }}[ARGS]{{ arguments }}", "mistral_args"),
        ("<｜User｜>{{ messages[0].content }}<｜Assistant｜><think>\n", "deepseek_r1"),
        ("<｜User｜><｜Assistant｜><｜tool▁calls▁begin｜><function=>", "deepseek_r1"),
        ("<|start|>user<|message|>{{ messages[0].content }}<|end|><|start|>assistant<|channel|>final", "harmony"),
        (MISTRAL, "plain"),
        ("{{ messages }}", "plain"),
        ("", "plain"),
        (None, "plain"),
    ],
)
def test_family_is_known_from_the_template(template: str | None, name: str) -> None:
    assert detect(template).name == name
    assert detect(template, architecture="gemma3", name="Gemma").name == (name if template else "gemma3")


@pytest.mark.parametrize(
    ("architecture", "name", "expected"),
    [
        ("qwen3", "Qwen3 8B", "qwen3"),
        ("qwen3moe", "Qwen3-Coder-30B-A3B-Instruct", "qwen3_coder"),
        ("qwen2", "", "chatml"),
        ("llama", "Llama 3.1 8B Instruct", "llama3"),
        ("llama", "SmolLM2 135M Instruct", "chatml"),
        ("llama", "Mistral-Small-Instruct", "mistral_args"),
        ("qwen2", "DeepSeek-R1-Distill-Qwen-7B", "deepseek_r1"),
        ("gpt-oss", "", "harmony"),
        ("glm4moe", "", "glm45"),
        ("gemma2", "", "gemma3"),
        ("gemma3", "gemma-3-4b-base", "plain"),
        ("llama", "a tale", "plain"),
        ("", "", "plain"),
    ],
)
def test_without_a_template_the_metadata_decides(architecture: str, name: str, expected: str) -> None:
    assert detect(None, architecture, name).name == expected


def test_family_can_be_named() -> None:
    assert [by_name(each.name) for each in FORMATS] == list(FORMATS)
    with pytest.raises(StartupError, match=r"'chatmi'; known: chatml, deepseek_r1, .*, qwen3_coder$"):
        by_name("chatmi")


def test_every_fallback_template_gives_its_own_family_away() -> None:
    for each in FORMATS:
        assert detect(each.template) is each


def test_the_texts_of_every_family_fit_together() -> None:
    for each in FORMATS:
        assert (each.calls is None) == (each.channels is not None)
        if each.calls is not None:
            first = each.calls.begin or each.calls.before_name
            assert first.startswith(each.calls.opening)
            texts = "".join([first, each.calls.before_name, each.calls.between, each.calls.after, each.calls.end])
            parameter = each.calls.parameter
            texts += "" if parameter is None else parameter.before_key + parameter.before_value + parameter.after_value
            texts += each.calls.optional_begin + ("<think></think>" if each.thinking else "")
            assert all(token in texts for token in each.tokens)
