"""Gemma 2 and 3: two roles that alternate, calls as Python in a block of code. No template of theirs reads tools."""

from proxy_inference_engine.formats.base import Format
from proxy_inference_engine.formats.syntax import ArgumentStyle, CallSyntax

_TEMPLATE = """{{- bos_token }}
{%- for message in messages %}
    {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else 'user') + '\\n' }}
    {{- message.content | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}
"""

GEMMA3 = Format(
    name="gemma3",
    template=_TEMPLATE,
    markers=("<start_of_turn>",),
    architectures=("gemma", "gemma2", "gemma3"),
    names=("gemma",),
    calls=CallSyntax(
        opening="```tool_code",
        before_name="```tool_code\n",
        between="(",
        after=")\n```",
        style=ArgumentStyle.PYTHON,
    ),
    result_tags=("```tool_output\n", "\n```"),
    must_alternate=True,
    has_system_role=False,
)
