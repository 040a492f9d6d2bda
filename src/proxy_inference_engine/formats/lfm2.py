"""LFM 2 and 2.5: ChatML with a row of Python calls. Templates of theirs list tools and write no call."""

from proxy_inference_engine.formats.base import Format
from proxy_inference_engine.formats.fallback import chatml_template
from proxy_inference_engine.formats.syntax import ArgumentStyle, CallSyntax

_BEGIN, _END = "<|tool_call_start|>", "<|tool_call_end|>"
_CALLS = CallSyntax(
    opening=_BEGIN,
    begin=f"{_BEGIN}[",
    before_name="",
    between="(",
    after=")",
    separator=", ",
    end=f"]{_END}",
    style=ArgumentStyle.PYTHON,
)

LFM2 = Format(
    name="lfm2",
    template=chatml_template(_CALLS, tools="{{- 'List of tools: ' + tools | tojson }}"),
    markers=("<|im_start|>", "List of tools: "),
    architectures=("lfm2", "lfm2moe"),
    names=("lfm2",),
    calls=_CALLS,
    tokens=frozenset({_BEGIN, _END}),
    result_tags=("<|tool_response_start|>", "<|tool_response_end|>"),
    is_taught_elsewhere=True,
)
