"""A Sampling or a Request as it would be after somebody added a field, `added`, which no shortcut knows.

`CHANGES` has a value for each field of a Sampling that it has not by itself.
"""

from dataclasses import field, fields, make_dataclass
from typing import Any, TypeVar

from proxy_inference_engine.types import Request, Sampling

CHANGES: dict[str, Any] = {
    "seed": 2,
    "temperature": 0.5,
    "top_k": 4,
    "top_p": 0.5,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "repetition_window": 4,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "dry_multiplier": 0.8,
    "dry_base": 2.0,
    "dry_allowed_length": 3,
    "dry_breakers": frozenset({1}),
    "xtc_probability": 0.5,
    "xtc_threshold": 0.2,
    "typical_p": 0.5,
    "top_n_sigma": 1.0,
    "dynatemp_range": 0.5,
    "dynatemp_exponent": 2.0,
    "mirostat": 2,
    "mirostat_tau": 3.0,
    "mirostat_eta": 0.2,
    "logit_bias": {1: 1.0},
    "takes_any_seed": True,
}

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
