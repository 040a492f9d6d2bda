"""Qwen 3 Coder: ChatML with one element for each argument. templates that think are found too."""

from proxy_inference_engine.formats.base import Format
from proxy_inference_engine.formats.fallback import chatml_template
from proxy_inference_engine.formats.hermes import HERMES_TOKENS
from proxy_inference_engine.formats.syntax import ArgumentStyle, CallSyntax, Parameter

_CALLS = CallSyntax(
    opening="<tool_call>",
    before_name="<tool_call>\n<function=",
    between=">\n",
    after="</function>\n</tool_call>",
    style=ArgumentStyle.TAGS,
    parameter=Parameter(before_key="<parameter=", before_value=">\n", after_value="\n</parameter>\n"),
)

QWEN3_CODER = Format(
    name="qwen3_coder",
    template=chatml_template(_CALLS),
    markers=("<|im_start|>", "<function="),
    names=("qwen3coder",),
    calls=_CALLS,
    tokens=HERMES_TOKENS,
)
