"""Which family a model belongs to. A new family is one file and one line here."""

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.formats.base import Format
from proxy_inference_engine.formats.chatml import CHATML
from proxy_inference_engine.formats.deepseek_r1 import DEEPSEEK_R1
from proxy_inference_engine.formats.gemma3 import GEMMA3
from proxy_inference_engine.formats.glm45 import GLM45
from proxy_inference_engine.formats.granite3 import GRANITE3
from proxy_inference_engine.formats.harmony import HARMONY
from proxy_inference_engine.formats.lfm2 import LFM2
from proxy_inference_engine.formats.llama3 import LLAMA3
from proxy_inference_engine.formats.mistral import MISTRAL, MISTRAL_ARGS
from proxy_inference_engine.formats.phi4_mini import PHI4_MINI
from proxy_inference_engine.formats.plain import PLAIN
from proxy_inference_engine.formats.qwen3 import QWEN3
from proxy_inference_engine.formats.qwen3_coder import QWEN3_CODER

# The first that fits wins: those whose templates contain another's markers and more come before it.
FORMATS = (
    HARMONY,
    DEEPSEEK_R1,
    GLM45,
    QWEN3_CODER,
    LFM2,
    QWEN3,
    CHATML,
    LLAMA3,
    MISTRAL_ARGS,
    MISTRAL,
    GEMMA3,
    GRANITE3,
    PHI4_MINI,
    PLAIN,
)


def detect(template: str | None, architecture: str = "", name: str = "") -> Format:
    """The family whose markers the chat template contains; without a template what the model's metadata says."""
    if not template:
        return _by_metadata(architecture, name)
    for each in FORMATS:
        if each.markers and all(marker in template for marker in each.markers):
            return each
    return PLAIN


def choose_format(wanted: str | None, template: str | None, architecture: str, name: str) -> Format:
    """The family the user named, or else the one that fits the model."""
    return detect(template, architecture, name) if wanted is None else by_name(wanted)


def by_name(name: str) -> Format:
    """The family the user named."""
    for each in FORMATS:
        if each.name == name:
            return each
    known = ", ".join(sorted(each.name for each in FORMATS))
    raise StartupError(f"unknown chat format {name!r}; known: {known}")


def _by_metadata(architecture: str, name: str) -> Format:
    letters = "".join(filter(str.isalnum, name.lower()))
    if "base" in letters:  # taught no chat at all
        return PLAIN
    named = (each for each in FORMATS if any(part in letters for part in each.names))
    built = (each for each in FORMATS if architecture in each.architectures)
    return next(named, None) or next(built, PLAIN)
