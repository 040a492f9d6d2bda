"""Bodies of APIs whose clients add fields with every release: what is unknown is no error, it is kept to be named."""

from collections.abc import Iterator
from typing import Any

from pydantic import PrivateAttr

from proxy_inference_engine.server.apis.shared.fields import OpenSchema


class OpenBody(OpenSchema):
    """A whole body, which tells what of it nothing here reads."""

    _unknown: tuple[str, ...] = PrivateAttr(())

    def model_post_init(self, _context: Any) -> None:
        # Here, because a large body is validated off the event loop.
        self._unknown = tuple(dict.fromkeys(_unknown_fields(self)))

    @property
    def unknown(self) -> tuple[str, ...]:
        """The fields that nothing here reads, each once."""
        return self._unknown


def _unknown_fields(value: object, path: str = "") -> Iterator[str]:
    """The paths of fields that no schema has, without the indexes of lists; null equals absent."""
    if isinstance(value, OpenSchema):
        yield from value.extras(path)
        for name in type(value).model_fields:
            yield from _unknown_fields(getattr(value, name), f"{path}{name}.")
    elif isinstance(value, list):
        for item in value:
            yield from _unknown_fields(item, path)
