"""Granite 3: a JSON list behind a token. Its templates ask for that and write no call."""

from proxy_inference_engine.formats.base import Format
from proxy_inference_engine.formats.fallback import call_list, fill, tool_list
from proxy_inference_engine.formats.syntax import CallSyntax

_CALLS = CallSyntax(
    opening="<|tool_call|>",
    begin="<|tool_call|>[",
    before_name='{"name": "',
    between='", "arguments": ',
    after="}",
    separator=", ",
    end="]",
)
_TEMPLATE = """{%- if tools %}
    {{- '<|start_of_role|>system<|end_of_role|>' }}
    {{- messages[0].content + '\\n\\n' if messages[0].role == 'system' else '' }}
    @TOOLS
    {{- '<|end_of_text|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if not (tools and loop.first and message.role == 'system') %}
        {{- '<|start_of_role|>' + message.role + '<|end_of_role|>' + message.content }}
        {%- if message.tool_calls %}@CALLS{%- endif %}
        {{- '<|end_of_text|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_of_role|>assistant<|end_of_role|>' }}{%- endif %}
"""

GRANITE3 = Format(
    name="granite3",
    template=fill(_TEMPLATE, TOOLS=tool_list(_CALLS), CALLS=call_list(_CALLS)),
    markers=("<|start_of_role|>", "<|tool_call|>"),
    architectures=("granite",),
    names=("granite3",),
    calls=_CALLS,
    tokens=frozenset({"<|tool_call|>"}),
    is_taught_elsewhere=True,
)
