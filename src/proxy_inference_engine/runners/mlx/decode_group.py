"""Slots that are computed together, one token each: their caches, merged as mlx-lm merges them.

Merging and taking apart copy everything, so a group stays as it is while the same slots go on.
"""

import logging
from collections.abc import Sequence

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache

from proxy_inference_engine.runners.mlx.layer_cache import LayerCache, can_merge, extract, merge

_MAX_WASTE = 2  # how many times as much as they hold the slots of a group may take, because all are as long as one
_FREE_TOKENS = 256  # not worth counting
_MAX_DIFFERENCE = 0.03  # of the spread of the logits, on average; a mask that is wrong makes it 0.06 and more

_log = logging.getLogger(__name__)


class DecodeGroup:
    """Of two slots or more; `caches` has one for each layer."""

    __slots__ = ("caches", "slots")

    def __init__(self, slots: Sequence[int], all_caches: Sequence[list[LayerCache]]) -> None:
        self.slots: list[int | None] = list(slots)
        self.caches = [merge(list(layer)) for layer in zip(*all_caches, strict=True)]

    @property
    def is_empty(self) -> bool:
        return all(slot is None for slot in self.slots)

    def compute(self, model: nn.Module, ids: mx.array) -> mx.array:
        """`ids` (slots,) → logits (slots, vocabulary)."""
        logits: mx.array = model(ids[:, None], cache=self.caches)
        return logits[:, -1]

    def extract(self, slot: int) -> list[LayerCache]:
        """A copy of what a slot holds. Waits for the device."""
        index = self.slots.index(slot)
        return [extract(cache, index) for cache in self.caches]

    def forget(self, slot: int) -> None:
        """The slot's part stays where it is, but nobody will ask for it."""
        self.slots[self.slots.index(slot)] = None


def worth_grouping(num_tokens: dict[int, int]) -> list[int]:
    """The slots, of those with so many tokens, that can be padded to one length without much waste."""
    slots = sorted(num_tokens, key=lambda slot: num_tokens[slot])
    total = sum(num_tokens.values())
    while slots:
        longest = num_tokens[slots[-1]]
        if longest * len(slots) <= _MAX_WASTE * total + _FREE_TOKENS * len(slots):
            break
        total -= longest
        slots.pop()
    return sorted(slots) if len(slots) > 1 else []


def can_decode_together(model: nn.Module) -> bool:
    """Whether two short texts give together what each gives alone.

    An architecture may take all sequences of a batch to be of one length; nothing but a trial tells.
    """
    texts = [mx.array([ids]) for ids in ([2, 3, 5], [7, 2, 6, 4, 8, 3, 9])]
    all_caches = [make_prompt_cache(model) for _ in texts]
    if not all(map(can_merge, all_caches[0])):
        return False
    try:
        alone = mx.concatenate([model(ids, cache=make_prompt_cache(model))[:, -1] for ids in texts])
        for ids, caches in zip(texts, all_caches, strict=True):
            model(ids[:, :-1], cache=caches)
        together = DecodeGroup(range(len(texts)), all_caches).compute(
            model, mx.concatenate([ids[0, -1:] for ids in texts])
        )
        differences = mx.abs(alone - together).astype(mx.float32).mean(axis=-1)
        return bool((differences < _MAX_DIFFERENCE * mx.std(alone.astype(mx.float32), axis=-1)).all().item())
    except Exception:
        _log.exception("sequences of this model are computed one after another")
        return False
