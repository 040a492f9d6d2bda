"""DeepSeek R1 and its distilled models: the prompt opens the reasoning, calls stand between tokens of their own."""

from proxy_inference_engine.formats.base import Format
from proxy_inference_engine.formats.fallback import call_list, fill, tool_list
from proxy_inference_engine.formats.syntax import CallSyntax, Thinking

_BEGIN, _END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL_BEGIN, _SEP, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_CALLS = CallSyntax(
    opening=_BEGIN,
    begin=_BEGIN,
    before_name=f"{_CALL_BEGIN}function{_SEP}",
    between="\n```json\n",
    after=f"\n```{_CALL_END}",
    end=_END,
)
_TEMPLATE = """{{- bos_token }}
{%- if messages[0].role == 'system' %}{{- messages[0].content }}{%- endif %}
{%- if tools %}
    {{- '\\n\\n' if messages[0].role == 'system' else '' }}
    @TOOLS
{%- endif %}
{%- for message in messages %}
    {%- set follows = loop.previtem and loop.previtem.role == 'tool' %}
    {%- if message.role == 'user' %}
        {{- '<｜User｜>' + message.content }}
    {%- elif message.role == 'assistant' %}
        {{- ('' if follows else '<｜Assistant｜>') + message.content }}
        {%- if message.tool_calls %}@CALLS{%- endif %}
        {{- eos_token }}
    {%- elif message.role == 'tool' %}
        {{- '' if follows else '<｜tool▁outputs▁begin｜>' }}
        {{- '<｜tool▁output▁begin｜>' + message.content + '<｜tool▁output▁end｜>' }}
        {{- '' if loop.nextitem and loop.nextitem.role == 'tool' else '<｜tool▁outputs▁end｜>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt and messages[-1].role != 'tool' %}{{- '<｜Assistant｜><think>\\n' }}{%- endif %}
"""

DEEPSEEK_R1 = Format(
    name="deepseek_r1",
    template=fill(_TEMPLATE, TOOLS=tool_list(_CALLS), CALLS=call_list(_CALLS)),
    markers=("<｜Assistant｜>",),
    architectures=("deepseek2",),
    names=("deepseekr1",),
    thinking=Thinking(),
    calls=_CALLS,
    tokens=frozenset({_BEGIN, _END, _CALL_BEGIN, _SEP, _CALL_END, "<think>", "</think>"}),
    has_text_arguments=True,
)
