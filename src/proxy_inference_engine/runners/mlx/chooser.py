"""Chooses tokens where the logits are: gathers what many sequences want into arrays and orders one computation.

Does the steps of `sampling/sampler.py` that need no history. Never waits for the device.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple, cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import TokenIds, Want
from proxy_inference_engine.runners.mlx.draw import MAX_NARROW, DrawSettings, cut, draw, narrow, weigh
from proxy_inference_engine.runners.mlx.logits import LazyLogits, last_positions
from proxy_inference_engine.types import STEP_PARAMETERS, Sampling, Shortcut

_DEVICE = Shortcut("seed", "temperature", "top_k", "top_p", "min_p", "logit_bias", *STEP_PARAMETERS)
_MAX_TOP_K = 2**30  # more than any vocabulary
_MAX_SHARPNESS = 1e30  # as float32 neither infinite nor 0: a 0 and an infinite logit would make a NaN


class DevicePicks:
    """Implements `base.Picks`. `array` is what the next pass takes, (wants,) int32; -1 where logits were no numbers."""

    __slots__ = ("array",)

    def __init__(self, array: mx.array) -> None:
        self.array = array

    def read(self) -> TokenIds:
        return np.array(self.array)


class DeviceChooser:
    """Implements `base.Chooser`. Stateless: what is chosen depends on the wants alone."""

    def can_choose(self, sampling: Sampling) -> bool:
        return _DEVICE.takes(sampling)

    def choose(self, wants: Sequence[Want]) -> DevicePicks:
        if not wants:
            return DevicePicks(mx.zeros((0,), dtype=mx.int32))
        logits = _allow(last_positions([cast(LazyLogits, want.logits) for want in wants]), wants)
        best = logits.max(axis=-1, keepdims=True)  # a NaN wins
        picks = mx.where(mx.isfinite(best.squeeze(1)), _choose(logits, best, wants), -1)
        mx.async_eval(picks)
        return DevicePicks(picks)


class DrawKind(Enum):
    """Which steps of choosing a row needs, and so what it costs."""

    GREEDY = auto()
    PLAIN = auto()
    NARROW = auto()  # so few are kept that most of the vocabulary need not be looked at
    WIDE = auto()


def kind_of(sampling: Sampling, num_tokens: int) -> DrawKind:
    if sampling.temperature <= 0 or sampling.top_k == 1:
        return DrawKind.GREEDY
    if 0 < sampling.top_k <= MAX_NARROW:
        return DrawKind.NARROW
    return DrawKind.WIDE if sampling.top_p < 1 or 0 < sampling.top_k < num_tokens else DrawKind.PLAIN


def _choose(logits: mx.array, best: mx.array, wants: Sequence[Want]) -> mx.array:
    """Steps 5 to 10 of `sampling/sampler.py`, for the rows of each kind together; the ids, (wants,)."""
    rows_by_kind: dict[DrawKind, list[int]] = {}
    for row, want in enumerate(wants):
        rows_by_kind.setdefault(kind_of(want.sampling, logits.shape[-1]), []).append(row)
    if len(rows_by_kind) == 1:
        return _choose_alike(logits, best, wants, next(iter(rows_by_kind)))
    parts = [
        _choose_alike(logits[mx.array(rows)], best[mx.array(rows)], [wants[row] for row in rows], kind)
        for kind, rows in rows_by_kind.items()
    ]
    places = np.argsort(np.concatenate(list(rows_by_kind.values())))
    return mx.concatenate(parts)[mx.array(places)]


def _choose_alike(logits: mx.array, best: mx.array, wants: Sequence[Want], kind: DrawKind) -> mx.array:
    if kind is DrawKind.GREEDY:
        return mx.argmax(logits, axis=-1).astype(mx.int32)
    samplings = [want.sampling for want in wants]
    settings = _settings(samplings, [want.number for want in wants])
    candidates = narrow(logits) if kind is DrawKind.NARROW else None
    weights = weigh(logits if candidates is None else candidates.logits, best, settings.sharpness)
    border = None
    if kind is not DrawKind.PLAIN:
        has_top_k = any(sampling.top_k > 0 for sampling in samplings)
        has_top_p = any(sampling.top_p < 1 for sampling in samplings)
        border = cut(weights, settings, has_top_k=has_top_k, has_top_p=has_top_p)
    drawn = draw(weights, settings, border)
    return drawn if candidates is None else candidates.ids(drawn)


def _settings(samplings: list[Sampling], numbers: list[float]) -> DrawSettings:
    return DrawSettings(
        sharpness=_column([_sharpness(sampling.temperature) for sampling in samplings]),
        top_k=mx.array(np.array([min(sampling.top_k, _MAX_TOP_K) for sampling in samplings], dtype=np.int32))[:, None],
        top_p=_column([sampling.top_p for sampling in samplings]),
        min_p=_column([sampling.min_p for sampling in samplings]),
        number=_column(numbers),
    )


def _sharpness(temperature: float) -> float:
    return min(max(1 / temperature, 1 / _MAX_SHARPNESS), _MAX_SHARPNESS)


def _column(values: list[float]) -> mx.array:
    return mx.array(np.array(values, dtype=np.float32))[:, None]


class _Spots(NamedTuple):
    """Single logits of many rows."""

    rows: list[int]
    ids: list[int]


def _allow(logits: mx.array, wants: Sequence[Want]) -> mx.array:
    """Steps 1 and 2 of `sampling/sampler.py`: biases, bans and masks."""
    adjusted = _ban(_bias(logits, wants), wants)
    masks = [(row, want.allowed) for row, want in enumerate(wants) if want.allowed is not None]
    if not masks:
        return adjusted
    allowed = _masks(masks, len(wants), logits.shape[-1])
    narrowed = mx.where(allowed, adjusted, -mx.inf)
    if not any(want.banned and want.allowed is not None for want in wants):
        return narrowed
    has_mask = np.zeros((len(wants), 1), dtype=np.bool_)
    has_mask[[row for row, _ in masks]] = True
    is_empty = (narrowed.max(axis=-1, keepdims=True) == -mx.inf) & mx.array(has_mask)
    return mx.where(is_empty, mx.where(allowed, logits, -mx.inf), narrowed)


def _bias(logits: mx.array, wants: Sequence[Want]) -> mx.array:
    spots, values = _Spots([], []), list[float]()
    for row, want in enumerate(wants):
        bias = want.sampling.logit_bias
        spots.rows.extend([row] * len(bias))
        spots.ids.extend(bias)
        values.extend(bias.values())
    if not values:
        return logits
    return logits.at[mx.array(spots.rows), mx.array(spots.ids)].add(mx.array(values, dtype=mx.float32))


def _ban(logits: mx.array, wants: Sequence[Want]) -> mx.array:
    spots = _Spots([], [])
    for row, want in enumerate(wants):
        spots.rows.extend([row] * len(want.banned))
        spots.ids.extend(want.banned)
    if not spots.ids:
        return logits
    adjusted = mx.array(logits)
    adjusted[mx.array(spots.rows), mx.array(spots.ids)] = -mx.inf
    return adjusted


def _masks(masks: list[tuple[int, NDArray[np.bool_]]], num_rows: int, num_tokens: int) -> mx.array:
    """(num_rows, num_tokens); the rows without a mask share one that lets all pass, so only real ones travel."""
    stacked = mx.array(np.stack([mask for _, mask in masks]))
    if len(masks) == num_rows:
        return stacked
    places = np.full(num_rows, len(masks), dtype=np.int32)
    places[[row for row, _ in masks]] = np.arange(len(masks))
    return mx.concatenate([stacked, mx.ones((1, num_tokens), dtype=mx.bool_)])[mx.array(places)]
