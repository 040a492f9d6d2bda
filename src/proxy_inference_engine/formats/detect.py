"""Which family a model belongs to. A new family is one file and one line here."""

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.formats.base import Format
from proxy_inference_engine.formats.chatml import CHATML
from proxy_inference_engine.formats.plain import PLAIN

FORMATS = (CHATML, PLAIN)  # the first whose marker is in the template wins


def detect(template: str | None) -> Format:
    """The family whose marker the chat template contains; `plain` when there is none."""
    text = template or ""
    return next((each for each in FORMATS if any(marker in text for marker in each.markers)), PLAIN)


def by_name(name: str) -> Format:
    """The family the user named."""
    for each in FORMATS:
        if each.name == name:
            return each
    known = ", ".join(each.name for each in FORMATS)
    raise StartupError(f"unknown chat format {name!r}; known: {known}")
