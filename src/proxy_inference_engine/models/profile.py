"""What models want where a request is silent: data, one row a family."""

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """Used for the fields a request leaves out. The values here are those of a model without a profile."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


# (pattern of the name, pattern of the architecture, defaults); the first row that matches counts.
_PROFILES: tuple[tuple[str, str, SamplingDefaults], ...] = (
    # https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct
    ("*smollm2*instruct*", "*", SamplingDefaults(temperature=0.2, top_p=0.9)),
)


def profile(name: str, architecture: str = "") -> SamplingDefaults:
    """The defaults of a model, by its name and its GGUF architecture."""
    for name_pattern, architecture_pattern, defaults in _PROFILES:
        if fnmatchcase(name.lower(), name_pattern) and fnmatchcase(architecture.lower(), architecture_pattern):
            return defaults
    return SamplingDefaults()
