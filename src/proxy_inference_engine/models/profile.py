"""What models want where a request is silent: their own files first, then data, one row a family."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Profile:
    """Used for what a request or the configuration leaves out. These are the values of a model without a profile."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    terminal_penalty: float = 1.0  # of repetition, on a terminal: people there have nothing to set one with
    spaces_json: bool = False  # whether structured JSON has a space after commas and colons


# (pattern of the name, pattern of the architecture, defaults); the first row that matches counts.
_PROFILES: tuple[tuple[str, str, Profile], ...] = (
    # https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct
    # Without a penalty on a terminal most of its longer answers end in a loop.
    # Spaces: `python -m benchmarks.spacing`, without them fewer fields are right.
    ("*smollm2*instruct*", "*", Profile(temperature=0.2, top_p=0.9, terminal_penalty=1.1, spaces_json=True)),
)


# What a file may say of sampling: the least and the largest value that a request may have too.
_RANGES = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "top_k": (0.0, 1e9),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (1e-9, 100.0),
}
_SILENT: Mapping[str, object] = MappingProxyType({})


def profile(name: str, architecture: str = "", generation: Mapping[str, object] = _SILENT) -> Profile:
    """The defaults of a model: what its own files say, then what is known by its name and its architecture."""
    found = Profile()
    for name_pattern, architecture_pattern, defaults in _PROFILES:
        if fnmatchcase(name.lower(), name_pattern) and fnmatchcase(architecture.lower(), architecture_pattern):
            found = defaults
            break
    own = {key: value for key in _RANGES if (value := _number(generation.get(key), *_RANGES[key])) is not None}
    if "top_k" in own:
        own["top_k"] = int(own["top_k"])
    return replace(found, **own)  # type: ignore[arg-type]  # the keys are those of _RANGES


def _number(value: object, least: float, largest: float) -> float | None:
    """A value from a file as a number; None where a request could not say it either."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and least <= number <= largest else None
