"""Harmony (gpt-oss): an answer is a row of messages in channels, and a call ends it. Its templates read one call."""

from proxy_inference_engine.formats.base import Format
from proxy_inference_engine.formats.syntax import Channels

_TEMPLATE = """{{- '<|start|>system<|message|>Reasoning: ' + (reasoning_effort or 'medium') }}
{{- '\\n\\n# Valid channels: analysis, commentary, final.<|end|>' }}
{%- if tools or messages[0].role == 'system' %}
    {{- '<|start|>developer<|message|>' }}
    {{- '# Instructions\\n\\n' + messages[0].content + '\\n\\n' if messages[0].role == 'system' else '' }}
    {%- if tools %}
        {{- '# Tools\\n\\n## functions\\n\\nnamespace functions {\\n' }}
        {%- for tool in tools %}
            {{- '\\n// ' + tool.function.description if tool.function.description else '' }}
            {{- '\\ntype ' + tool.function.name + ' = (_: ' + tool.function.parameters | tojson + ') => any;\\n' }}
        {%- endfor %}
        {{- '\\n} // namespace functions' }}
    {%- endif %}
    {{- '<|end|>' }}
{%- endif %}
{%- set asked = namespace(index=-1) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{%- set asked.index = loop.index0 %}{%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {%- if message.thinking and message.tool_calls and loop.index0 > asked.index %}
            {{- '<|start|>assistant<|channel|>analysis<|message|>' + message.thinking + '<|end|>' }}
        {%- endif %}
        {%- if message.content %}
            {{- '<|start|>assistant<|channel|>' + ('commentary' if message.tool_calls else 'final') }}
            {{- '<|message|>' + message.content + '<|end|>' }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '<|start|>assistant<|channel|>commentary to=functions.' + call.function.name }}
            {{- ' <|constrain|>json<|message|>' }}
            {{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
            {{- '<|call|>' }}
        {%- endfor %}
    {%- elif message.role == 'tool' %}
        {{- '<|start|>functions.' + (message.name or 'tool') + ' to=assistant<|channel|>commentary<|message|>' }}
        {{- message.content + '<|end|>' }}
    {%- elif message.role == 'user' %}
        {{- '<|start|>user<|message|>' + message.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}
"""

HARMONY = Format(
    name="harmony",
    template=_TEMPLATE,
    markers=("<|channel|>",),
    architectures=("gpt-oss",),
    names=("gptoss",),
    channels=Channels(),
    tokens=frozenset({"<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>"}),
    has_parallel_calls=False,
    reasoning_field="thinking",
    is_reasoning_alone=True,
)
