"""Fill-in-the-middle: a prompt and what follows the gap, as the ids that a model trained for it continues with the gap.

Knows the markers by their names in a vocabulary, and no engine.
"""

from collections.abc import Sequence
from typing import NamedTuple

from proxy_inference_engine.runners.base import Tokenizer

# Before the prompt, before what follows the gap, before the gap; the first whose three a vocabulary has count.
_NAMES = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen 2.5 Coder, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek Coder
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
    (" <PRE>", " <SUF>", " <MID>"),  # Code Llama, where names are shown as text
)


class Markers(NamedTuple):
    """Token ids: before the prompt, before what follows the gap, before the gap."""

    prefix: int
    suffix: int
    middle: int


def find_markers(tokenizer: Tokenizer) -> Markers | None:
    """The three markers in a vocabulary; None: the model has no fill-in-the-middle."""
    specials = tokenizer.specials
    return next((Markers(*(specials[name] for name in names)) for names in _NAMES if specials.keys() >= {*names}), None)


def infill(markers: Markers, prompt: Sequence[int], suffix: Sequence[int], bos_id: int | None) -> tuple[int, ...]:
    """The ids that the model continues with the gap; a BOS that the prompt begins with stays in front."""
    num_first = int(bos_id is not None and len(prompt) > 0 and prompt[0] == bos_id)
    return (*prompt[:num_first], markers.prefix, *prompt[num_first:], markers.suffix, *suffix, markers.middle)
