"""A Sampling or a Request as it would be after somebody added a field, `added`, which no shortcut knows."""

from dataclasses import field, fields, make_dataclass
from typing import Any, TypeVar

from proxy_inference_engine.types import Request, Sampling

_Kind = TypeVar("_Kind", Sampling, Request)


def wider(value: _Kind, *, added: float = 0.0) -> _Kind:
    """The same value with one field more, whose default is 0."""
    kind: Any = make_dataclass(
        f"Wider{type(value).__name__}",
        [("added", float, field(default=0.0))],
        bases=(type(value),),
        frozen=True,
        slots=True,
    )
    widened: _Kind = kind(**{each.name: getattr(value, each.name) for each in fields(value)}, added=added)
    return widened
