"""Lines of `role: text`, for a model that was never taught a chat format."""

from proxy_inference_engine.formats.base import Format

PLAIN = Format(
    name="plain",
    template=(
        "{% for message in messages %}{{ message.role + ': ' + message.content + '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
    ),
    stop_strings=("\nuser:", "\nsystem:", "\ntool:"),
)
