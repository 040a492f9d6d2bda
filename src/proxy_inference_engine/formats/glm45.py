"""GLM 4.5 and later: turns that only begin, and calls with a pair of elements for each argument."""

from proxy_inference_engine.formats.base import Format
from proxy_inference_engine.formats.fallback import SINCE_QUESTION, call_list, fill, tool_list
from proxy_inference_engine.formats.hermes import HERMES_TOKENS
from proxy_inference_engine.formats.syntax import ArgumentStyle, CallSyntax, Parameter, Thinking

_PARAMETER = Parameter(before_key="<arg_key>", before_value="</arg_key>\n<arg_value>", after_value="</arg_value>\n")
_CALLS = CallSyntax(
    opening="<tool_call>",
    before_name="<tool_call>",
    between="\n",
    after="</tool_call>",
    style=ArgumentStyle.TAGS,
    parameter=_PARAMETER,
)
_TEMPLATE = """{{- '[gMASK]<sop>' }}@INIT
{%- if tools %}
    {{- '<|system|>\\n' }}
    @TOOLS
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|assistant|>\\n<think>' }}
        {{- message.reasoning_content if message.reasoning_content and loop.index0 > asked.index else '' }}
        {{- '</think>' + ('\\n' + message.content if message.content else '') }}
        {%- if message.tool_calls %}
            {{- '\\n' }}
            @CALLS
        {%- endif %}
    {%- elif message.role == 'tool' %}
        {{- '' if loop.previtem and loop.previtem.role == 'tool' else '<|observation|>' }}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
    {%- else %}
        {{- '<|' + message.role + '|>\\n' + message.content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>' }}
    {{- '\\n<think></think>' if enable_thinking is defined and not enable_thinking else '' }}
{%- endif %}
"""

GLM45 = Format(
    name="glm45",
    template=fill(_TEMPLATE, INIT=SINCE_QUESTION, TOOLS=tool_list(_CALLS), CALLS=call_list(_CALLS)),
    markers=("<arg_key>",),
    architectures=("glm4moe",),
    names=("glm45", "glm46", "glm47"),
    thinking=Thinking(),
    calls=_CALLS,
    tokens=HERMES_TOKENS | {"<think>", "</think>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"},
)
