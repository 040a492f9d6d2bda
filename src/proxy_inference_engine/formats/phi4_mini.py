"""Phi-4-mini: a JSON list between two tokens. Its template lists tools in the system's message and writes no call."""

from proxy_inference_engine.formats.base import Format
from proxy_inference_engine.formats.fallback import call_list, fill
from proxy_inference_engine.formats.syntax import CallSyntax

_CALLS = CallSyntax(
    opening="<|tool_call|>",
    begin="<|tool_call|>[",
    before_name='{"name": "',
    between='", "arguments": ',
    after="}",
    separator=", ",
    end="]<|/tool_call|>",
)
_TEMPLATE = """{%- if tools and messages[0].role != 'system' %}
    {{- '<|system|><|tool|>' + tools | map(attribute='function') | list | tojson + '<|/tool|><|end|>' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|' + message.role + '|>' + message.content }}
    {%- if tools and loop.first and message.role == 'system' %}
        {{- '<|tool|>' + tools | map(attribute='function') | list | tojson + '<|/tool|>' }}
    {%- endif %}
    {%- if message.tool_calls %}@CALLS{%- endif %}
    {{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}
"""

PHI4_MINI = Format(
    name="phi4_mini",
    template=fill(_TEMPLATE, CALLS=call_list(_CALLS)),
    markers=("<|tool|>", "<|/tool|>", "<|end|>"),
    names=("phi4mini",),
    calls=_CALLS,
    tokens=frozenset({"<|tool_call|>", "<|/tool_call|>"}),
    is_taught_elsewhere=True,
)
