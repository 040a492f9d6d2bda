"""Llama 3: an answer is either text or calls, and how it starts says which. Its templates read one call of a turn."""

from proxy_inference_engine.formats.base import Format
from proxy_inference_engine.formats.fallback import call_list, fill, tool_list
from proxy_inference_engine.formats.syntax import CallSyntax

_CALLS = CallSyntax(
    opening='{"name": "',
    before_name='{"name": "',
    between='", "parameters": ',
    after="}",
    separator="; ",
    optional_begin="<|python_tag|>",
    is_at_start=True,
)
_TEMPLATE = """{{- bos_token }}
{%- if tools %}
    {{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
    {{- messages[0].content + '\\n\\n' if messages[0].role == 'system' else '' }}
    @TOOLS
    {{- '<|eot_id|>' }}
{%- endif %}
{%- for message in messages %}
    {%- if not (tools and loop.first and message.role == 'system') %}
        {{- '<|start_header_id|>' + ('ipython' if message.role == 'tool' else message.role) }}
        {{- '<|end_header_id|>\\n\\n' }}
        {%- if message.tool_calls %}@CALLS{%- else %}{{- message.content }}{%- endif %}
        {{- '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""

LLAMA3 = Format(
    name="llama3",
    template=fill(_TEMPLATE, TOOLS=tool_list(_CALLS), CALLS=call_list(_CALLS)),
    markers=("<|start_header_id|>",),
    names=("llama3",),
    calls=_CALLS,
    tokens=frozenset({"<|python_tag|>"}),
    has_parallel_calls=False,
)
