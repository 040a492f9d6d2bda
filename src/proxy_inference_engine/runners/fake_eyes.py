"""Eyes for the fake model: an image is a grid of patches, one token each, between a bracket on either side."""

import math

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.runners.base import ImageTokens

MARKER = "<|image|>"
PATCH = 16  # pixels a side
MAX_TOKENS = 512

VISION_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|image|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class FakeEyes:
    """For a `FakeRunner` with `VISION_TEMPLATE` whose first defined token is the marker: that has the id 260."""

    def __init__(self, token_id: int = 260, *, before: str = "", after: str = "") -> None:
        self._token_id = token_id
        self.before = before
        self.after = after

    @property
    def marker(self) -> str:
        return MARKER

    def tokens(self, width: int, height: int) -> ImageTokens:
        num_tokens = math.ceil(width / PATCH) * math.ceil(height / PATCH)
        if num_tokens > MAX_TOKENS:
            raise InvalidRequest(f"an image of {width}x{height} pixels is too large for this model")
        return ImageTokens((ord("["), *(self._token_id,) * num_tokens, ord("]")), 1, num_tokens)
