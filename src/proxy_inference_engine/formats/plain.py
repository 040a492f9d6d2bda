"""Lines of `role: text`, for a model that was never taught a chat format. Tools are described in words."""

from proxy_inference_engine.formats.base import Format
from proxy_inference_engine.formats.hermes import HERMES_CALLS

PLAIN = Format(
    name="plain",
    template=(
        "{% for message in messages %}{{ message.role + ': ' + message.content + '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
    ),
    stop_strings=("\nuser:", "\nsystem:", "\ntool:"),
    calls=HERMES_CALLS,
)
