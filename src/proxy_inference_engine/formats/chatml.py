"""ChatML with calls as Hermes writes them: SmolLM, Qwen 2.5, Hermes and many fine-tunes."""

from proxy_inference_engine.formats.base import Format
from proxy_inference_engine.formats.fallback import chatml_template
from proxy_inference_engine.formats.hermes import HERMES_CALLS, HERMES_TOKENS

CHATML = Format(
    name="chatml",
    template=chatml_template(HERMES_CALLS),
    markers=("<|im_start|>",),
    architectures=("qwen2", "qwen2moe"),
    names=("smollm", "qwen25", "hermes"),
    calls=HERMES_CALLS,
    tokens=HERMES_TOKENS,
)
