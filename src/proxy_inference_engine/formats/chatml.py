"""ChatML: SmolLM, Qwen 2.5, Hermes and many fine-tunes."""

from proxy_inference_engine.formats.base import Format

CHATML = Format(
    name="chatml",
    markers=("<|im_start|>",),
    template=(
        "{% for message in messages %}"
        "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    ),
)
