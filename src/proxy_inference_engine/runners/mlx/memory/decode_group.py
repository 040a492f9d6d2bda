"""Slots that are computed together, one token each: their caches, merged as mlx-lm merges them.

Merging and taking apart copy everything, so a group stays as it is while the same slots go on.
"""

import logging
from collections.abc import Sequence

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache

from proxy_inference_engine.runners.mlx.memory.layer_cache import LayerCache, can_merge, extract, merge
from proxy_inference_engine.runners.mlx.rows import ordinary_ids

_MAX_WASTE = 2  # how many times as much as they hold the slots of a group may take, because all are as long as one
_FREE_TOKENS = 256  # not worth counting
_MAX_DIFFERENCE = 0.03  # of the spread of the logits, on average; a mask that is wrong makes it 0.06 and more

_log = logging.getLogger(__name__)


class DecodeGroup:
    """Two slots or more that are computed together; `caches` has one for each layer."""

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
        """Take a slot out of the group: its part stays where it is, but nobody will ask for it."""
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


def _difference(logits: mx.array, expected: mx.array) -> mx.array:
    """How much two sets of logits differ on average, row by row, as a part of their spread."""
    expected = expected.astype(mx.float32)
    return mx.abs(logits.astype(mx.float32) - expected).mean(axis=-1) / mx.std(expected, axis=-1)


def can_decode_together(model: nn.Module) -> bool:
    """Whether two short texts give together what each gives alone.

    An architecture may take all sequences of a batch to be of one length; nothing but a trial tells.
    """
    all_caches, twins = ([make_prompt_cache(model) for _ in range(2)] for _ in range(2))
    if not all(map(can_merge, all_caches[0])):
        return False
    try:
        num_tokens = model(mx.array([[1]])).shape[-1]
        ids = mx.array([ordinary_ids(num_tokens, 10)])
        texts = [ids[:, :3], ids[:, 3:]]
        whole = mx.concatenate([model(ids)[:, -1] for ids in texts])
        for ids, *both in zip(texts, all_caches, twins, strict=True):
            for caches in both:
                model(ids[:, :-1], cache=caches)
        last = mx.concatenate([ids[0, -1:] for ids in texts])
        alone = mx.concatenate([model(last[i : i + 1, None], cache=twins[i])[:, -1] for i in range(2)])
        together = DecodeGroup(range(2), all_caches).compute(model, last)
        # In pieces a text gives other last digits, and with few digits those are many.
        allowed = mx.maximum(_MAX_DIFFERENCE, 2 * _difference(alone, whole))
        return bool((_difference(together, whole) < allowed).all().item())
    except Exception:
        _log.exception("sequences of this model are computed one after another")
        return False
