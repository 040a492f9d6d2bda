"""Projections of the same input, computed as one: fewer and larger matrix products.

A layer asks for queries, keys and values, and for gate and up, of one hidden state. On a GPU each product costs its
launch, which for a few tokens is a good part of a step. Models are mlx-lm's and stay as they are: a part of a fused
product is asked for like the projection it stands for.
"""

from collections.abc import Sequence

import mlx.core as mx
from mlx import nn

_GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
_MAX_FUSED = 256  # tokens; with more, the launch is nothing and what reads a part of wide rows is slow


class _Fused:
    """One product for several projections. The first to be asked computes; the others follow with the same input."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        self._weights = mx.concatenate([part.weight for part in parts])
        biases = [part.bias for part in parts if "bias" in part]
        self._bias = mx.concatenate(biases) if biases else None
        mx.eval(self._weights, self._bias)
        self._input: mx.array | None = None
        self._output: mx.array | None = None
        self._num_left = 0
        self._num_parts = len(parts)

    @property
    def weights(self) -> mx.array | None:
        """The joint weights; None where there is a bias too."""
        return self._weights if self._bias is None else None

    def part(self, hidden: mx.array, start: int, stop: int) -> mx.array:
        if hidden.size > _MAX_FUSED * hidden.shape[-1]:
            return self._product(hidden, start, stop)
        if self._input is not hidden or self._output is None:
            self._input, self._num_left = hidden, self._num_parts
            self._output = self._product(hidden, 0, self._weights.shape[0])
        output = self._output
        self._num_left -= 1
        if self._num_left == 0:  # an array that is kept here could not be reused
            self._input = self._output = None
        return output[..., start:stop]

    def _product(self, hidden: mx.array, start: int, stop: int) -> mx.array:
        product = hidden @ self._weights[start:stop].T
        return product if self._bias is None else product + self._bias[start:stop]


class _Part(nn.Module):
    def __init__(self, fused: _Fused, start: int, stop: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        object.__setattr__(self, "_of", (fused, start, stop))

    def __call__(self, hidden: mx.array) -> mx.array:
        fused, start, stop = self._of
        output: mx.array = fused.part(hidden, start, stop)
        return output


def fused_weights(module: nn.Module, names: Sequence[str]) -> mx.array | None:
    """The joint weights of projections that were fused; None where they were not, or have a bias."""
    parts = [module.get(name) for name in names]
    owners = {part._of[0] for part in parts if isinstance(part, _Part)}
    if len(owners) != 1 or not all(isinstance(part, _Part) for part in parts):
        return None
    fused: _Fused = owners.pop()
    return fused.weights


def fuse(model: nn.Module) -> int:
    """Fuse what can be fused, layer by layer, so that only one layer is there twice at a time; how many products."""
    num_fused = 0
    for module in model.modules():
        for names in _GROUPS:
            parts = [module.get(name) for name in names]
            if _can_fuse(parts):
                _fuse(module, names, parts)
                num_fused += 1
    return num_fused


def _can_fuse(parts: Sequence[nn.Module | None]) -> bool:
    """Plain linear layers of one input, all with a bias or all without."""
    if not all(type(part) is nn.Linear for part in parts):
        return False
    return len({("bias" in part, part.weight.shape[1], part.weight.dtype) for part in parts if part is not None}) == 1


def _fuse(module: nn.Module, names: Sequence[str], parts: Sequence[nn.Module]) -> None:
    fused, start = _Fused(parts), 0
    for name, part in zip(names, parts, strict=True):
        width = part.weight.shape[0]
        module[name] = _Part(fused, start, start + width)
        start += width
