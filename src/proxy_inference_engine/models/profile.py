"""What models want where a request is silent: data, one row a family."""

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Profile:
    """Used for what a request or the configuration leaves out. These are the values of a model without a profile."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    spaces_json: bool = False  # whether structured JSON has a space after commas and colons


# (pattern of the name, pattern of the architecture, defaults); the first row that matches counts.
_PROFILES: tuple[tuple[str, str, Profile], ...] = (
    # https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct
    # Spaces: `python -m benchmarks.spacing`, without them fewer fields are right.
    ("*smollm2*instruct*", "*", Profile(temperature=0.2, top_p=0.9, spaces_json=True)),
)


def profile(name: str, architecture: str = "") -> Profile:
    """The defaults of a model, by its name and its GGUF architecture."""
    for name_pattern, architecture_pattern, defaults in _PROFILES:
        if fnmatchcase(name.lower(), name_pattern) and fnmatchcase(architecture.lower(), architecture_pattern):
            return defaults
    return Profile()
