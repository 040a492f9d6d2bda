"""LoRA adapters over a model on MLX: loaded with it, and chosen row by row as a pass is ordered.

An adapter adds a product of two thin matrices to a linear layer. Those of all adapters are kept one above the other, so
that rows with different ones go through the model together.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_unflatten

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.mlx.adapter_files import AdapterPart, read_adapter

_log = logging.getLogger(__name__)
_MAX_DIFFERENCE = 0.1  # of logits, whose rounding errors are the larger the fewer bits there are
_LINEAR = (nn.Linear, nn.QuantizedLinear)


class _Choice:
    """Which adapter each row of the pass that is being ordered has: their places in the stacks; 0: none."""

    def __init__(self) -> None:
        self.one: int = 0  # of all rows
        self.each: mx.array | None = None  # (rows,), where they differ


class _Adapted(nn.Module):
    """A linear layer with what adapters add to it. `down` (adapters, in, rank), `up` (adapters, rank, out)."""

    def __init__(self, inner: nn.Module, down: mx.array, up: mx.array, choice: _Choice) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self["inner"] = inner
        object.__setattr__(self, "_stacks", (down, up, choice))

    def __call__(self, hidden: mx.array) -> mx.array:
        down, up, choice = self._stacks
        output: mx.array = self["inner"](hidden)
        place = choice.one if choice.each is None else choice.each
        if choice.each is not None or choice.one:
            output = output + (hidden @ down[place]) @ up[place]
        return output


class _Target(NamedTuple):
    """A linear layer of the model, and its numbers."""

    module: nn.Module
    width: int  # of its input
    height: int  # of its output
    dtype: mx.Dtype


class Adapters:
    """Changes the model: the layers that adapters know are wrapped. Raises StartupError where a file is no good."""

    def __init__(self, model: nn.Module, folders: Mapping[str, Path]) -> None:
        self._places = {name: place for place, name in enumerate(folders, start=1)}
        self._choice = _Choice()
        targets = {path: _target(module) for path, module in model.named_modules() if isinstance(module, _LINEAR)}
        parts = {name: _checked(name, read_adapter(name, folder), targets) for name, folder in folders.items()}
        wrapped = []
        for path in sorted({path for each in parts.values() for path in each}):
            found = {self._places[name]: each[path] for name, each in parts.items() if path in each}
            wrapped.append((path, self._wrap(targets[path], found)))
        model.update_modules(tree_unflatten(wrapped))
        self.can_mix = self._can_mix(model)

    def _wrap(self, target: _Target, parts: Mapping[int, AdapterPart]) -> _Adapted:
        """Thinner ones are filled up with zeros, and the first, of no adapter, has nothing else."""
        rank, count = max(part.down.shape[1] for part in parts.values()), len(self._places) + 1
        down = mx.zeros((count, target.width, rank), target.dtype)
        up = mx.zeros((count, rank, target.height), target.dtype)
        for place, part in parts.items():
            own = part.down.shape[1]
            down[place, :, :own] = part.down.astype(target.dtype)
            up[place, :own] = part.up.astype(target.dtype)
        mx.eval(down, up)
        return _Adapted(target.module, down, up, self._choice)

    def _can_mix(self, model: nn.Module) -> bool:
        """Whether rows with different ones may go together, by a trial: a layer may see them in another shape."""
        names = [None, *self._places]
        ids = mx.array([list(range(1 + row, 5 + row)) for row in range(len(names))])
        try:
            with self.over(names):
                together = model(ids)
            for row, name in enumerate(names):
                with self.over([name]):
                    alone = model(ids[row : row + 1])
                if not mx.allclose(together[row], alone[0], rtol=_MAX_DIFFERENCE, atol=_MAX_DIFFERENCE).item():
                    return False
        except Exception:
            _log.exception("rows with different adapters are computed one after another")
            return False
        return True

    @contextmanager
    def over(self, names: Sequence[str | None]) -> Iterator[None]:
        """What is ordered inside has these, row by row."""
        places = [0 if name is None else self._places[name] for name in names]
        self._choice.one = places[0]
        self._choice.each = mx.array(places) if len(set(places)) > 1 else None
        try:
            yield
        finally:
            self._choice.one, self._choice.each = 0, None


def _target(module: nn.Module) -> _Target:
    height, width = module.weight.shape
    if isinstance(module, nn.QuantizedLinear):
        return _Target(module, width * 32 // module.bits, height, module.scales.dtype)
    return _Target(module, width, height, module.weight.dtype)


def _checked(name: str, parts: Mapping[str, AdapterPart], targets: Mapping[str, _Target]) -> dict[str, AdapterPart]:
    """The parts by the model's own paths. Raises StartupError for a layer that this model does not have."""
    checked = {}
    for given, part in parts.items():
        path = next((each for each in (given, f"language_model.{given}") if each in targets), None)
        if path is None or ".layers." not in path:
            raise StartupError(f"adapter {name!r} changes {given!r}, which is no linear layer inside this model")
        target = targets[path]
        if part.down.shape[0] != target.width or part.up.shape[1] != target.height:
            shape = f"{part.down.shape[0]} to {part.up.shape[1]} numbers, not {target.width} to {target.height}"
            raise StartupError(f"adapter {name!r} is for another model: {given!r} takes {shape}")
        checked[path] = part
    return checked
