"""Qwen 3 and QwQ: ChatML that thinks. Others who do it the same way are found here too."""

from proxy_inference_engine.formats.base import Format
from proxy_inference_engine.formats.fallback import chatml_template
from proxy_inference_engine.formats.hermes import HERMES_CALLS, HERMES_TOKENS
from proxy_inference_engine.formats.syntax import Thinking

QWEN3 = Format(
    name="qwen3",
    template=chatml_template(HERMES_CALLS, has_thinking=True),
    markers=("<|im_start|>", "</think>"),
    architectures=("qwen3", "qwen3moe"),
    names=("qwen3", "qwq"),
    thinking=Thinking(),
    calls=HERMES_CALLS,
    tokens=HERMES_TOKENS | {"<think>", "</think>"},
)
