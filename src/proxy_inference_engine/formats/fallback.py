"""Pieces of our own chat templates, for model files that bring none: made from the same syntax as mask and parser."""

import json
import re

from proxy_inference_engine.formats.convention import introduction
from proxy_inference_engine.formats.syntax import CallSyntax

# Reasoning of turns before the last question is no longer of use, and families were not taught to see it.
SINCE_QUESTION = """
{%- set asked = namespace(index=-1) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{%- set asked.index = loop.index0 %}{%- endif %}
{%- endfor %}
"""


def fill(template: str, **pieces: str) -> str:
    """A template with its `@NAME`s replaced."""
    return re.sub("@([A-Z]+)", lambda match: pieces[match[1]], template)


def literal(text: str) -> str:
    """A text as an expression of the template language."""
    return json.dumps(text)


def tool_list(calls: CallSyntax) -> str:
    """Prints the tools and how to call them."""
    before, after = introduction(calls)
    return (
        f"{{{{- {literal(before)} }}}}"
        "{%- for tool in tools %}{{- '\\n' + tool.function | tojson }}{%- endfor %}"
        f"{{{{- {literal(after)} }}}}"
    )


def call_list(calls: CallSyntax) -> str:
    """Prints the calls of `message`."""
    name = f"{literal(calls.before_name)} + call.function.name + {literal(calls.between)}"
    return (
        f"{{{{- {literal(calls.begin)} }}}}"
        "{%- for call in message.tool_calls %}"
        "{%- set given = call.function.arguments %}"
        f"{{{{- {name} }}}}{_arguments(calls)}{{{{- {literal(calls.after)} }}}}"
        f"{{%- if not loop.last %}}{{{{- {literal(calls.separator)} }}}}{{%- endif %}}"
        "{%- endfor %}"
        f"{{{{- {literal(calls.end)} }}}}"
    )


def _arguments(calls: CallSyntax) -> str:
    if calls.parameter is None:
        return "{{- given if given is string else given | tojson }}"
    tag = calls.parameter
    before, between, after = map(literal, (tag.before_key, tag.before_value, tag.after_value))
    element = f"{before} + key + {between} + (value if value is string else value | tojson) + {after}"
    return (
        "{%- if given is string %}{{- given }}{%- else %}"
        f"{{%- for key, value in given.items() %}}{{{{- {element} }}}}{{%- endfor %}}"
        "{%- endif %}"
    )


def chatml_template(calls: CallSyntax, *, has_thinking: bool = False, tools: str | None = None) -> str:
    """`<|im_start|>role\\ntext<|im_end|>` for each turn, results in turns of the user. `tools` prints those."""
    reasoning = (
        "{%- if message.reasoning_content and loop.index0 > asked.index %}"
        "{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}"
        "{%- endif %}"
    )
    silence = (
        "{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
    )
    return fill(
        _CHATML,
        INIT=SINCE_QUESTION if has_thinking else "",
        TOOLS=tools or tool_list(calls),
        REASONING=reasoning if has_thinking else "",
        CALLS=call_list(calls),
        SILENCE=silence if has_thinking else "",
    )


_CHATML = """@INIT
{%- if tools %}
    {{- '<|im_start|>system\\n' + (messages[0].content + '\\n\\n' if messages[0].role == 'system' else '') }}
    @TOOLS
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '' if loop.previtem and loop.previtem.role == 'tool' else '<|im_start|>user' }}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {{- '' if loop.nextitem and loop.nextitem.role == 'tool' else '<|im_end|>\\n' }}
    {%- elif not (tools and loop.first and message.role == 'system') %}
        {{- '<|im_start|>' + message.role + '\\n' }}
        @REASONING
        {{- message.content }}
        {%- if message.tool_calls %}
            {{- '\\n' if message.content else '' }}
            @CALLS
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    @SILENCE
{%- endif %}
"""
