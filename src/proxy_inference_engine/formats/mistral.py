"""Mistral: calls behind a token, first as one JSON array, in newer models one after the other."""

from proxy_inference_engine.formats.base import Format
from proxy_inference_engine.formats.fallback import call_list, fill
from proxy_inference_engine.formats.syntax import CallSyntax

_ARRAY = CallSyntax(
    opening="[TOOL_CALLS]",
    begin="[TOOL_CALLS][",
    before_name='{"name": "',
    between='", "arguments": ',
    after="}",
    separator=", ",
    end="]",
)
_ROW = CallSyntax(opening="[TOOL_CALLS]", before_name="[TOOL_CALLS]", between="[ARGS]", after="", separator="")
_NUM_ID_CHARS = 9

# The first generation has no place for instructions but the user's turn.
_TEMPLATE = """{{- bos_token }}
{%- set lead = namespace(text='') %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        @SYSTEM
    {%- elif message.role == 'user' %}
        {%- if tools and lead.text is not none %}
            {{- '[AVAILABLE_TOOLS]' + tools | tojson + '[/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {{- '[INST]' + (lead.text or '') + message.content + '[/INST]' }}
        {%- set lead.text = none %}
    {%- elif message.role == 'tool' %}
        {{- '[TOOL_RESULTS]' + @RESULT + '[/TOOL_RESULTS]' }}
    {%- else %}
        {{- message.content }}
        {%- if message.tool_calls %}@CALLS{%- endif %}
        {{- eos_token }}
    {%- endif %}
{%- endfor %}
"""


def _template(calls: CallSyntax, system: str, result: str) -> str:
    return fill(_TEMPLATE, SYSTEM=system, RESULT=result, CALLS=call_list(calls))


MISTRAL = Format(
    name="mistral",
    template=_template(
        _ARRAY, "{%- set lead.text = message.content + '\\n\\n' %}", "{'content': message.content} | tojson"
    ),
    markers=("[TOOL_CALLS]",),
    calls=_ARRAY,
    tokens=frozenset({"[TOOL_CALLS]"}),
    must_alternate=True,
    num_id_chars=_NUM_ID_CHARS,
)

MISTRAL_ARGS = Format(
    name="mistral_args",
    template=_template(_ROW, "{{- '[SYSTEM_PROMPT]' + message.content + '[/SYSTEM_PROMPT]' }}", "message.content"),
    markers=("[TOOL_CALLS]", "[ARGS]"),
    architectures=("mistral3",),
    names=("mistral", "ministral", "magistral", "devstral"),
    calls=_ROW,
    tokens=frozenset({"[TOOL_CALLS]", "[ARGS]"}),
    must_alternate=True,
    num_id_chars=_NUM_ID_CHARS,
)
