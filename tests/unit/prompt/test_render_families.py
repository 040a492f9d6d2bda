"""What each family's own template makes of the same conversations."""

import json
from typing import Any

import pytest

from proxy_inference_engine.formats import FORMATS, by_name
from proxy_inference_engine.formats.signature import signature
from proxy_inference_engine.formats.stubs import python_stub
from proxy_inference_engine.interaction import Interaction, Tool, ToolCall, ToolKind
from proxy_inference_engine.prompt import PromptRenderer
from tests.unit.prompt.table import TableTokenizer

WEATHER = Tool("weather", "Tells it", {"type": "object", "properties": {"city": {"type": "string"}}})
NOTE = Tool("note", kind=ToolKind.CUSTOM)
SYSTEM, HI = Interaction.of("system", "Be kind."), Interaction.of("user", "Hi")
CALLS = (ToolCall("c1", "weather", '{"city": "Rom"}'), ToolCall("c2", "note", 'a "b"', ToolKind.CUSTOM))
HISTORY = [
    HI,
    Interaction.of("assistant", "", tool_calls=CALLS, reasoning_content="Hmm"),
    Interaction.of("tool", "noted", tool_call_id="c2"),
    Interaction.of("tool", "sun", tool_call_id="c1"),
]


def renderer(name: str) -> PromptRenderer:
    return PromptRenderer(TableTokenizer(bos_id=1), by_name(name), None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "chatml",
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "qwen3",
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "qwen3_coder",
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
        ),
        ("gemma3", "<s><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\n"),
        (
            "llama3",
            "<s><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        ("mistral", "<s>[INST]Be kind.\n\nHi[/INST]"),
        ("mistral_args", "<s>[SYSTEM_PROMPT]Be kind.[/SYSTEM_PROMPT][INST]Hi[/INST]"),
        ("deepseek_r1", "<s>Be kind.<｜User｜>Hi<｜Assistant｜><think>\n"),
        ("glm45", "[gMASK]<sop><|system|>\nBe kind.<|user|>\nHi<|assistant|>"),
        (
            "harmony",
            "<|start|>system<|message|>Reasoning: medium\n\n# Valid channels: analysis, commentary, final.<|end|>"
            "<|start|>developer<|message|># Instructions\n\nBe kind.\n\n<|end|>"
            "<|start|>user<|message|>Hi<|end|><|start|>assistant",
        ),
        ("plain", "system: Be kind.\nuser: Hi\nassistant:"),
    ],
)
def test_instructions_and_a_question(name: str, expected: str) -> None:
    assert renderer(name).text([SYSTEM, HI]) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "chatml",
            '<|im_start|>assistant\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rom"}}\n</tool_call>\n'
            '<tool_call>\n{"name": "note", "arguments": {"input": "a \\"b\\""}}\n</tool_call><|im_end|>\n'
            "<|im_start|>user\n<tool_response>\nsun\n</tool_response>\n<tool_response>\nnoted\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        (
            "qwen3",
            "<|im_start|>assistant\n<think>\nHmm\n</think>\n\n"
            '<tool_call>\n{"name": "weather", "arguments": {"city": "Rom"}}\n</tool_call>\n'
            '<tool_call>\n{"name": "note", "arguments": {"input": "a \\"b\\""}}\n</tool_call><|im_end|>\n'
            "<|im_start|>user\n<tool_response>\nsun\n</tool_response>\n<tool_response>\nnoted\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        (
            "qwen3_coder",
            "<|im_start|>assistant\n<tool_call>\n<function=weather>\n<parameter=city>\nRom\n</parameter>\n</function>\n"
            '</tool_call>\n<tool_call>\n<function=note>\n<parameter=input>\na "b"\n</parameter>\n</function>\n'
            "</tool_call><|im_end|>\n"
            "<|im_start|>user\n<tool_response>\nsun\n</tool_response>\n<tool_response>\nnoted\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        (
            "gemma3",
            '<start_of_turn>model\n```tool_code\nweather(city="Rom")\n```\n'
            '```tool_code\nnote(input="a \\"b\\"")\n```<end_of_turn>\n'
            "<start_of_turn>user\n```tool_output\nsun\n```\n```tool_output\nnoted\n```<end_of_turn>\n"
            "<start_of_turn>model\n",
        ),
        (
            "llama3",
            "<|start_header_id|>assistant<|end_header_id|>\n\n"
            '{"name": "weather", "parameters": {"city": "Rom"}}<|eot_id|>'
            "<|start_header_id|>ipython<|end_header_id|>\n\nsun<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n"
            '{"name": "note", "parameters": {"input": "a \\"b\\""}}<|eot_id|>'
            "<|start_header_id|>ipython<|end_header_id|>\n\nnoted<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        (
            "mistral",
            '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rom"}}, '
            '{"name": "note", "arguments": {"input": "a \\"b\\""}}]</s>'
            '[TOOL_RESULTS]{"content": "sun"}[/TOOL_RESULTS][TOOL_RESULTS]{"content": "noted"}[/TOOL_RESULTS]',
        ),
        (
            "mistral_args",
            '[TOOL_CALLS]weather[ARGS]{"city": "Rom"}[TOOL_CALLS]note[ARGS]{"input": "a \\"b\\""}</s>'
            "[TOOL_RESULTS]sun[/TOOL_RESULTS][TOOL_RESULTS]noted[/TOOL_RESULTS]",
        ),
        (
            "deepseek_r1",
            "<｜Assistant｜><｜tool▁calls▁begin｜>"
            '<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{"city": "Rom"}\n```<｜tool▁call▁end｜>\n'
            '<｜tool▁call▁begin｜>function<｜tool▁sep｜>note\n```json\n{"input": "a \\"b\\""}\n```<｜tool▁call▁end｜>'
            "<｜tool▁calls▁end｜></s><｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>sun<｜tool▁output▁end｜>"
            "<｜tool▁output▁begin｜>noted<｜tool▁output▁end｜><｜tool▁outputs▁end｜>",
        ),
        (
            "glm45",
            "<|assistant|>\n<think>Hmm</think>\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rom</arg_value>\n"
            '</tool_call>\n<tool_call>note\n<arg_key>input</arg_key>\n<arg_value>a "b"</arg_value>\n</tool_call>'
            "<|observation|>\n<tool_response>\nsun\n</tool_response>\n<tool_response>\nnoted\n</tool_response><|assistant|>",
        ),
        (
            "harmony",
            "<|start|>assistant<|channel|>analysis<|message|>Hmm<|end|>"
            "<|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
            '{"city": "Rom"}<|call|>'
            "<|start|>functions.weather to=assistant<|channel|>commentary<|message|>sun<|end|>"
            "<|start|>assistant<|channel|>commentary to=functions.note <|constrain|>json<|message|>"
            '{"input": "a \\"b\\""}<|call|>'
            "<|start|>functions.note to=assistant<|channel|>commentary<|message|>noted<|end|><|start|>assistant",
        ),
        (
            "plain",
            'assistant: <tool_call>\n{"name": "weather", "arguments": {"city": "Rom"}}\n</tool_call>\n'
            '<tool_call>\n{"name": "note", "arguments": {"input": "a \\"b\\""}}\n</tool_call>\n'
            "user: <tool_response>\nsun\n</tool_response>\n<tool_response>\nnoted\n</tool_response>\nassistant:",
        ),
    ],
)
def test_calls_and_results(name: str, expected: str) -> None:
    assert renderer(name).text(HISTORY, tools=[WEATHER, NOTE]).endswith(expected)
    without_tools = renderer(name).text(HISTORY)
    start = renderer(name).text([HI], add_generation_prompt=False)
    assert without_tools == start + expected


@pytest.mark.parametrize("name", [each.name for each in FORMATS])
def test_tools_are_listed_once_before_the_question(name: str) -> None:
    subject = renderer(name)
    for turns in ([HI], [SYSTEM, HI]):
        before, _, after = subject.text(turns, tools=[WEATHER, NOTE]).partition("Hi")
        assert ("Be kind." in before) == (SYSTEM in turns) and "Be kind." not in after
        for tool in (WEATHER, NOTE):
            schema: Any = signature(tool)["function"]["parameters"]
            listed = python_stub(tool) if name == "gemma3" else json.dumps(schema)
            assert before.count(listed) == 1 and tool.name in before and tool.description in before
        assert subject.text(turns) == subject.text(turns, tools=[])
        assert WEATHER.name not in subject.text(turns)


@pytest.mark.parametrize(
    ("name", "variables", "expected"),
    [
        ("qwen3", {"enable_thinking": False}, "<|im_start|>assistant\n<think>\n\n</think>\n\n"),
        ("qwen3", {"enable_thinking": True}, "<|im_start|>assistant\n"),
        ("glm45", {"enable_thinking": False}, "<|assistant|>\n<think></think>"),
        ("glm45", {"enable_thinking": True}, "<|assistant|>"),
        ("harmony", {"reasoning_effort": "high"}, "<|start|>assistant"),
    ],
)
def test_thinking_can_be_switched(name: str, variables: dict[str, Any], expected: str) -> None:
    prompt = renderer(name).chat([HI], variables=variables)
    assert prompt.text.endswith(expected) and not prompt.opens_reasoning
    if name == "harmony":
        assert "Reasoning: high\n" in prompt.text


@pytest.mark.parametrize("name", ["qwen3", "glm45", "harmony"])
def test_reasoning_before_the_last_question_is_left_out(name: str) -> None:
    assert "Hmm" in renderer(name).text(HISTORY)
    assert "Hmm" not in renderer(name).text([*HISTORY, Interaction.of("assistant", "Sunny"), HI])


def test_harmony_gets_text_and_reasoning_of_a_call_as_one() -> None:
    """Templates of gpt-oss refuse a call with both."""
    turn = Interaction.of("assistant", "Wait.", tool_calls=CALLS[:1], reasoning_content="Hmm")
    template = "<|channel|>{% for m in messages %}[{{ m.thinking }}|{{ m.content }}]{% endfor %}{{ 'tool_calls' }}"
    subject = PromptRenderer(TableTokenizer(), by_name("harmony"), template)
    assert subject.text([turn]) == "<|channel|>[Hmm\n\nWait.|]tool_calls"
    both = Interaction.of("assistant", "Yes.", reasoning_content="Hmm")
    assert subject.text([both]) == "<|channel|>[Hmm|Yes.]tool_calls"


@pytest.mark.parametrize("name", [each.name for each in FORMATS])
def test_harmless_prompts_give_the_ids_of_the_whole_text(name: str) -> None:
    prompt = renderer(name).chat([SYSTEM, *HISTORY], tools=[WEATHER, NOTE])
    ids = TableTokenizer().encode_whole(prompt.text)
    assert prompt.ids == (ids if ids[0] == 1 else (1, *ids))
