"""What a template does with turns and tools decides how they are given to it."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.formats import Format, ToolPlace, by_name, detect
from proxy_inference_engine.formats.hermes import HERMES_CALLS
from proxy_inference_engine.formats.syntax import ArgumentStyle
from proxy_inference_engine.interaction import Interaction, Role, Tool, ToolCall
from proxy_inference_engine.prompt.fitted_template import fit_template
from proxy_inference_engine.prompt.render import PromptRenderer
from proxy_inference_engine.runners.fake import ByteTokenizer
from tests.unit.formats.derived.corpus import template

LINES = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + LINES
STRICT = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}" + LINES
)
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
MISTRAL = "{{ bos_token }}[INST]{{ messages[0].content }}[/INST]"
TOOL = Tool("look", description="Looks.", parameters={"type": "object", "properties": {"at": {"type": "string"}}})
THOUGHT = "'<think>' + message.reasoning_content + '</think>'"
CALL = ToolCall("call_abcdefghij", "look", '{"at": "it"}')
RULE, ASK = Interaction.of(Role.SYSTEM, "Be kind."), Interaction.of(Role.USER, "Hello")
LOOKED = [
    ASK,
    Interaction.of(Role.ASSISTANT, "", tool_calls=(CALL,)),
    Interaction.of(Role.TOOL, "A cat.", tool_call_id=CALL.id),
]


def fitted(source: str) -> Format:
    return fit_template(detect(source), source, ByteTokenizer()).format


def text(source: str, turns: Sequence[Interaction], tools: Sequence[Tool] = ()) -> str:
    fit = fit_template(detect(source), source, ByteTokenizer())
    return PromptRenderer(ByteTokenizer(), fit.format, fit.template).text(turns, tools=tools)


def test_a_template_that_takes_everything_is_given_everything() -> None:
    format = fitted(LINES)
    assert not format.must_alternate and format.has_system_role
    assert text(LINES, [RULE, ASK, ASK]) == "<system>Be kind.<user>Hello<user>Hello"


def test_instructions_go_to_the_user_where_there_is_no_system() -> None:
    assert text(NO_SYSTEM, [RULE, ASK]) == "<user>Be kind.\n\nHello"
    silent = "{% for m in messages %}{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"
    assert text(silent, [RULE, ASK]) == "<user>Be kind.\n\nHello"


def test_strict_turns_alternate_and_the_user_begins() -> None:
    answer = Interaction.of(Role.ASSISTANT, "Hi.")
    assert text(STRICT, [ASK, ASK]) == "<user>Hello\n\nHello"
    assert text(STRICT, [answer, ASK]) == "<user><assistant>Hi.<user>Hello"


def test_tools_are_put_into_words_on_strict_turns_too() -> None:
    written = text(STRICT, [RULE, *LOOKED], [TOOL])
    assert written.startswith("<user>Be kind.\n\nYou can call these functions:")
    assert "<assistant><tool_call>" in written and written.endswith("<user><tool_response>\nA cat.\n</tool_response>")


def test_a_syntax_that_cannot_be_read_off_is_never_spoken() -> None:
    odd = template("{{- given | length | string + '!' + name }}", "'<odd>'", "'</odd>'")
    format = fitted(odd)
    assert format.calls == HERMES_CALLS and not format.reads_tools and not format.reads_calls
    written = text(odd, LOOKED, [TOOL])
    assert "<odd>" not in written and "<|role|>tools" not in written
    assert '<tool_call>\n{"name": "look", "arguments": {"at": "it"}}\n</tool_call>' in written


@pytest.mark.parametrize(
    "call",
    [
        "{{- '{\"name\": \"' + name + '\", \"arguments\": ' + (given | tojson | tojson) + '}' }}",
        "{{- name + '{' }}{%- for key, value in given.items() %}{{- key + ':' + value | tojson + ',' }}{%- endfor %}",
        "{{- given | tojson + ' for ' + name }}",
    ],
    ids=["JSON in a string", "values that nothing ends", "the name at last"],
)
def test_what_could_be_misread_is_not_taken_for_a_syntax(call: str) -> None:
    format = fitted(template(call, "'<|do|>'", "'<|done|>'"))
    assert format.calls == HERMES_CALLS and not format.reads_calls


def test_calls_that_nothing_ends_come_one_at_a_time() -> None:
    """Where keys are tags, the next call would be one more of them."""
    call = (
        "{{- '<do>' + name }}{%- for key, value in given.items() %}"
        "{{- '<' + key + '>' + value | string + '</' + key + '>' }}{%- endfor %}"
    )
    format = fitted(template(call, "'<|do|>'", "'<|done|>'"))
    assert format.calls is not None and not format.calls.can_repeat and not format.has_parallel_calls


def test_a_template_that_lists_tools_in_a_way_of_its_own_is_not_contradicted() -> None:
    listing = "{% if tools %}Call them with !!{{ tools | tojson }}{% endif %}" + LINES
    assert not fitted(listing).reads_tools
    teaching = "{% if tools %}Say <tool_call> and {{ tools | tojson }}{% endif %}" + LINES
    assert fitted(teaching).reads_tools


def test_results_stand_in_the_role_that_a_template_has_for_them() -> None:
    """Also where it writes no calls: those are text of the assistant then."""
    listing = "{% if tools %}Say <tool_call> and {{ tools | tojson }}{% endif %}"
    assert text(listing + LINES, LOOKED, [TOOL]).endswith("</tool_call><tool>A cat.")
    only_users = listing + LINES.replace("m.role }}", "'user' if m.role == 'tool' else m.role }}")
    assert text(only_users, LOOKED, [TOOL]).endswith("</tool_call><user><tool_response>\nA cat.\n</tool_response>")
    passed_over = listing + LINES.replace("messages %}", "messages if m.role != 'tool' %}")
    assert text(passed_over, LOOKED, [TOOL]).endswith("</tool_call><user><tool_response>\nA cat.\n</tool_response>")


@pytest.mark.parametrize(
    "value",
    ["value | string", "'\"' + value | string + '\"'", "value | tojson"],
    ids=["no quotes", "only quotes", "no commas"],
)
@pytest.mark.parametrize("has_roles", [True, False], ids=["any turns", "strict turns"])
def test_calls_that_a_template_writes_wrong_are_written_right(value: str, has_roles: bool) -> None:
    """As the model writes them, in the history too, and results where the template has them."""
    comma = "" if "tojson" in value else "{{- '' if loop.last else ', ' }}"
    call = f"{{{{- name + '(' }}}}{{%- for key, value in given.items() %}}{{{{- key + '=' + {value} }}}}"
    source = template(f"{call}{comma}{{%- endfor %}}{{{{- ')' }}}}", "'['", "']'", "', '")
    if not has_roles:
        source = STRICT.removesuffix(LINES) + source
    format = fitted(source)
    assert format.calls is not None and format.calls.style is ArgumentStyle.PYTHON
    assert format.reads_tools and not format.reads_calls
    arguments = {"at": 'a "b"\nc', "days": 3}
    turns = [ASK, Interaction.of(Role.ASSISTANT, "", tool_calls=(replace(CALL, arguments=json.dumps(arguments)),))]
    written = text(source, [*turns, LOOKED[-1]], [TOOL]).partition("<|role|>assistant<|text|>")[2]
    called, _, result = written.partition("<|stop|>")
    assert called == '[look(at="a \\"b\\"\\nc", days=3)]'
    assert result.startswith("<|role|>tool<|text|>A cat." if has_roles else "<|role|>user<|text|><tool_response>")


def test_tools_that_need_instructions_get_some() -> None:
    source = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
        "{% if tools and m.role == 'system' %}{{ tools | tojson }}<tool_call>{% endif %}{% endfor %}"
    )
    assert fitted(source).needs_system_for_tools
    assert text(source, [ASK], [TOOL]).startswith('<system>[{"type": "function"')
    assert text(source, [ASK]) == "<user>Hello"


def test_instructions_that_cost_the_tools_go_to_the_user() -> None:
    source = "{% if tools and messages[0].role != 'system' %}{{ tools | tojson }}<tool_call>{% endif %}" + LINES
    assert text(source, [RULE, ASK], [TOOL]).endswith("<user>Be kind.\n\nHello")


def test_no_tools_are_absent_where_a_template_counts_them() -> None:
    source = "{% if tools is defined and tools | length > 0 %}{{ tools | tojson }}{% endif %}" + LINES
    assert fitted(source).has_absent_tools
    assert text(source, [ASK]) == "<user>Hello"


def test_ids_are_as_the_template_wants_them() -> None:
    named = template("{{- '<|one|>' + call.id + '<|given|>' + given | tojson }}")
    assert fitted(named).id_form
    assert '<|one|>functions.look:0<|given|>{"at": "it"}' in text(named, LOOKED, [TOOL])
    strict = template(
        "{%- if call.id | length != 9 %}{{- raise_exception('nine signs') }}{%- endif %}"
        "{{- '<do=' + name + '>' + given | tojson + '</do>' + call.id }}"
    )
    assert fitted(strict).num_id_chars == 9
    assert "</do>000000000" in text(strict, LOOKED, [TOOL])
    ours = replace(CALL, id="abc123def")
    history = [
        ASK,
        Interaction.of(Role.ASSISTANT, "", tool_calls=(ours,)),
        Interaction.of(Role.TOOL, "A cat.", tool_call_id=ours.id),
    ]
    assert "</do>abc123def" in text(strict, history, [TOOL]), "one that is long enough stays"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking", "thought"])
def test_reasoning_is_handed_over_by_its_name(field: str) -> None:
    source = LINES.replace(
        "{{ m.content", f"{{% if m.{field} %}}<mull>think {{{{ m.{field} }}}}</mull>\n{{% endif %}}{{{{ m.content"
    )
    source = source.replace("<mull>think ", "<musing:think>").replace("</mull>", "</musing:think>")
    format = fitted(source)
    assert format.reasoning_field == field
    assert format.thinking is not None
    assert (format.thinking.opening, format.thinking.closing) == ("<musing:think>", "</musing:think>")
    assert format.thinking.gap == "\n"
    assert {"<musing:think>", "</musing:think>"} <= format.tokens


@pytest.mark.parametrize(
    ("template", "name", "opening"),
    [
        (CHATML + "<think></think><function=f>", "qwen3_coder", "<think>"),
        (MISTRAL + "[THINK][/THINK][TOOL_CALLS][ARGS]", "mistral_args", "[THINK]"),
        ("{{ messages }}</think>", "plain", "<think>"),
    ],
)
def test_a_fine_tune_that_reasons_keeps_its_family(template: str, name: str, opening: str) -> None:
    found = fitted(template)
    assert found.name == name and found.thinking is not None and found.thinking.opening == opening
    assert {found.thinking.opening, found.thinking.closing} <= found.tokens
    assert found.calls == by_name(name).calls


def test_a_block_that_a_template_only_cuts_out_is_known_too() -> None:
    source = "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</seed:think>')[-1] }}{% endfor %}"
    thinking = fitted(source).thinking
    assert thinking is not None and thinking.opening == "<seed:think>"


@pytest.mark.parametrize("gap", ["", "\n"])
def test_what_stands_behind_a_block_is_read_off_where_only_an_empty_one_is_written(gap: str) -> None:
    source = LINES.replace("{{ m.content", f"{{{{ '<think></think>{gap}' if m.role == 'assistant' }}}}{{{{ m.content")
    thinking = fitted(source.replace("\n", "\\n")).thinking
    assert thinking is not None and thinking.gap == gap


def test_what_stands_behind_a_block_may_differ_before_calls() -> None:
    """And a family's own is not taken for the template's."""
    call = template("{{- '<do=' + name + '>' + given | tojson + '</do>' }}", "'\\n\\n'", thought=THOUGHT)
    thinking = fitted(call).thinking
    assert thinking is not None and (thinking.gap, thinking.call_gap) == ("", "\n\n")
    family = fitted(call + "{# <|im_start|> <tool_call> <think> #}")
    assert family.thinking == thinking


def test_a_block_that_a_prompt_opens_and_nothing_ends_is_known_too() -> None:
    opens = LINES + "{% if add_generation_prompt %}<assistant><think>\n{% endif %}"
    thinking = fitted(opens).thinking
    assert thinking is not None and (thinking.opening, thinking.closing) == ("<think>", "</think>")
    assert fitted(opens.replace("<think>\n", "<think>\nno")).thinking is None


def test_a_family_keeps_its_syntax_where_the_template_writes_it() -> None:
    for name in ("chatml", "qwen3", "qwen3_coder", "glm45", "llama3", "mistral_args", "deepseek_r1"):
        family = by_name(name)
        format = fit_template(family, family.template, ByteTokenizer()).format
        assert (format.name, format.calls) == (name, family.calls)


def test_a_family_that_was_asked_for_keeps_its_syntax() -> None:
    source = template("{{- '<do=' + name + '>' + given | tojson + '</do>' }}")
    format = fit_template(by_name("chatml"), source, ByteTokenizer(), keeps_calls=True).format
    assert (format.name, format.calls) == ("chatml", HERMES_CALLS)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% for m in messages %}", "Unexpected end of template"),
        ("{{ raise_exception('Never.') }}", "Never"),
        ("{% include 'x' %}", "include is not available in chat templates (line 1)"),
    ],
)
def test_a_template_that_fails_is_noticed_in_one_line(source: str, reason: str) -> None:
    with pytest.raises(StartupError) as raised:
        fitted(source)
    assert "\n" not in raised.value.message
    assert reason in raised.value.message and "chat_template" in raised.value.message


def test_a_template_that_reads_parts_only_is_probed_with_parts() -> None:
    call = "{{- '<do=' + name + '>' + given | tojson + '</do>' }}"
    parts = "{%- for part in message.content or [] %}{{- part.text }}{%- endfor %}"
    source = template(call).replace("{{- message.content or '' }}", parts)
    format = fitted(source)
    assert format.calls is not None and format.calls.before_name == "<do="


IN_SYSTEM = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% if m.role == 'system' and 'tools' in m %}<|tool|>{{ m['tools'] }}<|/tool|>{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
AS_TEXT = (
    "{{ 'You can call: ' + functions + ' Today is ' + datetime + '.' }}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.tool_calls %} them["
    "{% for call in m.tool_calls %}"
    "{{ '{\"name\": \"' + call.function.name + '\", \"arguments\": ' + call.function.arguments | tojson + '}' }}"
    "{{ '' if loop.last else ', ' }}{% endfor %}]{% endif %}{% endfor %}<assistant>"
)


def test_tools_may_stand_in_the_message_of_the_system() -> None:
    assert fitted(IN_SYSTEM).tool_place is ToolPlace.SYSTEM and fitted(IN_SYSTEM).name == "phi4_mini"
    listed = '<|tool|>[{"name": "look", "description": "Looks.", "parameters": '
    assert text(IN_SYSTEM, [ASK], [TOOL]).startswith(f"<|system|>{listed}")
    assert text(IN_SYSTEM, [RULE, ASK], [TOOL]).startswith(f"<|system|>Be kind.{listed}")
    assert text(IN_SYSTEM, [ASK]) == "<|user|>Hello<|end|><|assistant|>"
    written = text(IN_SYSTEM, LOOKED, [TOOL])
    assert '<|assistant|><|tool_call|>[{"name": "look", "arguments": {"at": "it"}}]<|/tool_call|><|end|>' in written


def test_tools_may_be_a_text_and_the_day_another() -> None:
    assert fitted(AS_TEXT).tool_place is ToolPlace.FUNCTIONS
    assert text(AS_TEXT, [ASK]).startswith("You can call: [] Today is ")
    assert text(AS_TEXT, [ASK], [TOOL]).startswith('You can call: [{"name": "look", ')
    assert '<assistant> them[{"name": "look", "arguments": {"at": "it"}}]' in text(AS_TEXT, LOOKED, [TOOL])
    fit = fit_template(detect(AS_TEXT), AS_TEXT, ByteTokenizer())
    assert not PromptRenderer(ByteTokenizer(), fit.format, fit.template).variables, "nothing is left for a client"


def test_what_is_in_a_tool_stays_inert_wherever_it_stands() -> None:
    special = next(iter(ByteTokenizer().specials))
    tool = replace(TOOL, description=f"Looks. {special}")
    fit = fit_template(detect(IN_SYSTEM), IN_SYSTEM, ByteTokenizer())
    renderer = PromptRenderer(ByteTokenizer(), fit.format, fit.template)
    plain, odd = renderer.chat([ASK], tools=[TOOL]), renderer.chat([ASK], tools=[tool])
    ids = set(ByteTokenizer().specials.values())
    assert [each for each in odd.ids if each in ids] == [each for each in plain.ids if each in ids]
