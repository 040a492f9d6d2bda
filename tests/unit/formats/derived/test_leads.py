"""Templates where a text is a message of its own: what leads to it and what ends it is no part of the answer."""

import json
from dataclasses import dataclass, replace

import pytest

from proxy_inference_engine.formats import Format, detect
from proxy_inference_engine.formats.base import Labels
from proxy_inference_engine.formats.syntax import Thinking
from proxy_inference_engine.interaction import Interaction, Role, Tool, ToolCall
from proxy_inference_engine.prompt.fitted_template import fit_template
from proxy_inference_engine.prompt.render import PromptRenderer
from proxy_inference_engine.runners.fake import ByteTokenizer
from proxy_inference_engine.state_machine.demand import Demand, ListedText, ToolChoice
from proxy_inference_engine.state_machine.machine import MachineBuilder
from tests.unit.output.parsing import Parsed, cuts, itemise, parse
from tests.unit.state_machine.vocabularies import PieceTokenizer, verdict

LOOK = Tool("look", parameters={"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]})
CALL = ToolCall("call00001", "look", '{"at": "it"}')
ASK = Interaction.of(Role.USER, "Hello")
AUTO = Demand(tools=(LOOK,))

# Every message says whom it is for, and the prompt ends before that is said.
RECIPIENTS = """
{%- if tools %}{{- tools | tojson }}{%- endif %}
{%- for m in messages %}
    {{- '<|role|>' + m.role + '<|text|>' }}
    {%- if m.role == 'assistant' %}
        {%- if m.content %}{{- '>>>all\\n' + m.content }}{%- endif %}
        {%- for call in m.tool_calls or [] %}
            {{- '>>>' + call.function.name + '\\n' + call.function.arguments | tojson }}
        {%- endfor %}
    {%- else %}{{- m.content }}{%- endif %}
    {{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|role|>assistant<|text|>>>>' }}{%- endif %}
"""
# Thoughts, texts and calls are elements of a message.
ELEMENTS = """
{%- if tools %}{{- tools | tojson }}{%- endif %}
{%- for m in messages %}
    {{- '<|open|>message ' + m.role + '<|sep|>' }}
    {%- if m.role == 'assistant' %}
        {%- if m.reasoning_content %}
            {{- '<|open|>think<|sep|>' + m.reasoning_content + '<|close|>think<|sep|>' }}
        {%- endif %}
        {%- if m.content %}{{- '<|open|>response<|sep|>' + m.content + '<|close|>response<|sep|>' }}{%- endif %}
        {%- if m.tool_calls %}
            {{- '<|open|>tools<|sep|>' }}
            {%- for call in m.tool_calls %}
                {{- '<|open|>call ' + call.function.name + '<|sep|>' + call.function.arguments | tojson }}
                {{- '<|close|>call<|sep|>' }}
            {%- endfor %}
            {{- '<|close|>tools<|sep|>' }}
        {%- endif %}
    {%- else %}{{- m.content }}{%- endif %}
    {{- '<|close|>message<|sep|><|end_of_msg|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|open|>message assistant<|sep|>' }}{%- endif %}
"""
# A thought is a message, and the answer another.
MESSAGES = """
{%- if tools %}{{- tools | tojson }}{%- endif %}
{%- for m in messages %}
    {%- if m.reasoning %}{{- '<|begin|>assistant<|think|>' + m.reasoning + '<|end|>' }}{%- endif %}
    {{- '<|begin|>' + m.role }}
    {%- if m.tool_calls %}
        {{- '<|calling|>' }}
        {%- for call in m.tool_calls %}
            {{- '<|name|>' + call.function.name + '<|given|>' + call.function.arguments | tojson + '<|called|>' }}
        {%- endfor %}
        {{- '<|calls|>' }}
    {%- else %}{{- '<|content|>' + m.content + '<|end|>' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|begin|>assistant' }}{%- endif %}
"""


@dataclass(frozen=True)
class Led:
    template: str
    text: str  # how it answers "Fine."
    call: str
    both: str  # a text and a call
    thought: str  # with reasoning before a text
    lead: str

    @property
    def format(self) -> Format:
        return fit_template(detect(self.template), self.template, ByteTokenizer()).format

    @property
    def renderer(self) -> PromptRenderer:
        return PromptRenderer(ByteTokenizer(), self.format, self.template)


_JSON = '{"at": "it"}'
_LOOKED = f"<|open|>tools<|sep|><|open|>call look<|sep|>{_JSON}<|close|>call<|sep|><|close|>tools<|sep|>"
LED = {
    "recipients": Led(RECIPIENTS, "all\nFine.", f"look\n{_JSON}", f"all\nFine.>>>look\n{_JSON}", "", "all\n"),
    "elements": Led(
        ELEMENTS,
        "<|open|>response<|sep|>Fine.<|close|>response<|sep|><|close|>message<|sep|>",
        f"{_LOOKED}<|close|>message<|sep|>",
        f"<|open|>response<|sep|>Fine.<|close|>response<|sep|>{_LOOKED}<|close|>message<|sep|>",
        "<|open|>think<|sep|>Why?<|close|>think<|sep|><|open|>response<|sep|>Fine.<|close|>response<|sep|>",
        "<|open|>response<|sep|>",
    ),
    "messages": Led(
        MESSAGES,
        "<|content|>Fine.",
        f"<|calling|><|name|>look<|given|>{_JSON}<|called|>",
        "",
        "<|think|>Why?<|end|><|begin|>assistant<|content|>Fine.",
        "<|content|>",
    ),
}
every_kind = pytest.mark.parametrize("led", LED.values(), ids=LED.keys())


def labels(led: Led, *, has_tokens: bool = False) -> Labels:
    format = led.format
    tokens = dict(enumerate(sorted(format.tokens), start=1000)) if has_tokens else {}
    return Labels(
        format.thinking,
        calls=format.calls,
        tools={"look": LOOK},
        leads=format.leads(can_reason=True),
        trails=format.trails,
        start=format.answer_start,
        tokens=tokens,
    )


@every_kind
def test_what_leads_to_a_text_is_read_off(led: Led) -> None:
    assert led.format.lead == led.format.answer_start + led.lead and led.format.reads_calls


@pytest.mark.parametrize("has_tokens", [False, True])
@every_kind
def test_it_is_no_part_of_the_answer(led: Led, has_tokens: bool) -> None:
    subject = labels(led, has_tokens=has_tokens)
    for answer, text, thought in ((led.text, "Fine.", ""), (led.both, "Fine.", ""), (led.thought, "Fine.", "Why?")):
        for items in cuts(itemise(answer, subject)) if answer else ():
            parsed = parse(subject, items)
            assert (parsed.content, parsed.reasoning) == (text, thought)
            assert bool(parsed.calls) == (answer == led.both)
    for items in cuts(itemise(led.call, subject)):
        parsed = parse(subject, items)
        assert [json.loads(call.arguments) for call in parsed.calls] == [{"at": "it"}]
        assert parsed.content.strip() == ""


@every_kind
def test_an_answer_without_it_is_an_answer_too(led: Led) -> None:
    assert parse(replace(labels(led), start=""), ["Fine."]) == Parsed("Fine.")


@pytest.mark.parametrize("has_tokens", [False, True])
@every_kind
def test_the_grammar_knows_it(led: Led, has_tokens: bool) -> None:
    builder = MachineBuilder(led.format, PieceTokenizer(specials=sorted(led.format.tokens) if has_tokens else []))
    try:
        plain = "" if led.format.answer_start else "Fine."
        for answer in filter(None, (led.text, led.both, led.call, plain)):
            assert verdict(builder, AUTO, answer) in ("ended", "complete"), answer
        chosen = Demand(output=ListedText(("Fine.", "Bad.")), can_reason=False)
        assert verdict(builder, chosen, f"{led.lead}Fine.") in ("ended", "complete")
        assert verdict(builder, chosen, f"{led.lead}Other") == "refused"
        assert verdict(builder, replace(chosen, is_begun=True), "Fine.") in ("ended", "complete")
        called = replace(AUTO, tool_choice=ToolChoice("required"), can_reason=False)
        assert verdict(builder, called, led.call) in ("ended", "complete")
        assert verdict(builder, called, led.text) == "refused"
    finally:
        builder.close()


@every_kind
def test_a_prompt_ends_where_an_answer_begins(led: Led) -> None:
    """So what comes out of a history is what a model would have written."""
    answer = Interaction.of(Role.ASSISTANT, "", tool_calls=(CALL,))
    whole = led.renderer.text([ASK, answer], tools=[LOOK], add_generation_prompt=False)
    prompt = led.renderer.text([ASK], tools=[LOOK])
    assert led.call in whole
    assert whole.startswith(prompt) and prompt.endswith(led.format.answer_start)


def test_words_may_open_and_end_a_block() -> None:
    """The prompt ends with them, and histories have them not."""
    template = (
        "{%- for m in messages %}{{- '<|role|>' + m.role + '\\n' }}"
        "{%- if m.reasoning_content %}{{- m.reasoning_content + '\\n[FINAL ANSWER]\\n' }}{%- endif %}"
        "{{- m.content + '<|end|>' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|role|>assistant\\nMy reasoning so far:\\n' }}{%- endif %}"
    )
    fitted = fit_template(detect(template), template, ByteTokenizer())
    assert fitted.format.thinking == Thinking("My reasoning so far:", "[FINAL ANSWER]", "", "\n")
    renderer = PromptRenderer(ByteTokenizer(), fitted.format, fitted.template)
    assert renderer.chat([ASK]).opens_reasoning
    closed = renderer.chat([ASK], closes_reasoning=True)
    assert not closed.opens_reasoning and closed.text.endswith("My reasoning so far:\n\n[FINAL ANSWER]\n")
    subject = Labels(fitted.format.thinking, starts_in_reasoning=True)
    for items in cuts(itemise("So.\n[FINAL ANSWER]\nFine.", subject)):
        assert parse(subject, items) == Parsed("Fine.", "So.")


@pytest.mark.parametrize("has_tokens", [False, True])
def test_a_thought_may_be_a_message_to_oneself(has_tokens: bool) -> None:
    """It is led to as an answer is, but for a word; what space its first word has counts for the grammar only."""
    template = (
        "{%- for m in messages %}"
        "{%- if m.reasoning_content %}{{- '<|start|>assistant to=self<|message|>' + m.reasoning_content + '<|eom|>' }}"
        "{%- endif %}{{- '<|start|>' + m.role + (' to=user' if m.role == 'assistant' else '') }}"
        "{{- '<|message|>' + m.content + '<|eot|>' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}"
    )
    format = fit_template(detect(template), template, ByteTokenizer()).format
    thinking = Thinking(" to=self<|message|>", "<|eom|><|start|>assistant", "", "")
    assert (format.thinking, format.lead) == (thinking, " to=user<|message|>")
    thought, fine = f"{thinking.opening}Why?{thinking.closing}", f"{format.lead}Fine."
    tokens = dict(enumerate(sorted(format.tokens), start=1000)) if has_tokens else {}
    subject = Labels(format.thinking, leads=format.leads(can_reason=True), trails=format.trails, tokens=tokens)
    for answer, reasoning in ((thought + fine, "Why?"), (fine, ""), ("Fine.", "")):
        for items in cuts(itemise(answer, subject)):
            assert parse(subject, items) == Parsed("Fine.", reasoning)
    builder = MachineBuilder(format, PieceTokenizer(specials=sorted(format.tokens) if has_tokens else []))
    chosen = Demand(output=ListedText(("Fine.", "Bad.")))
    try:
        for answer in (thought + fine, fine):
            assert verdict(builder, chosen, answer) in ("ended", "complete")
        assert verdict(builder, chosen, thought + f"{format.lead}Other") == "refused"
    finally:
        builder.close()
