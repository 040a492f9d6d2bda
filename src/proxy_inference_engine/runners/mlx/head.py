"""The last layer of a model, made to compute only what is asked for: a prompt's logits are wanted at its end alone.

mlx-lm's models apply their head to every position. Here it is wrapped where it stands, so that it picks first.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
from mlx import nn

Pick = Callable[[mx.array], mx.array]  # hidden states (rows, tokens, width) → those whose logits are wanted


class OutputHead:
    """The head of one model. Where none is found, the logits of all positions are computed and picked afterwards."""

    def __init__(self, model: nn.Module) -> None:
        self.pick: Pick | None = None
        self.model = model
        for owner in (model, getattr(model, "language_model", None)):
            if owner is None:
                continue
            if isinstance(getattr(owner, "lm_head", None), nn.Module):
                owner.lm_head = _Picking(owner.lm_head, self)
            body = getattr(owner, "model", None)
            if body is not None and isinstance(getattr(body, "embed_tokens", None), nn.Module):
                body.embed_tokens = _Tied(body.embed_tokens, self)

    def logits(self, ids: mx.array, caches: list[Any], pick: Pick) -> mx.array:
        """Run the model over (rows, tokens); what `pick` picks of (rows, tokens, vocabulary)."""
        with self._picking(pick) as picked:
            found: mx.array = self.model(ids, cache=caches)
        return found if picked else pick(found)

    def hidden(self, ids: mx.array, caches: list[Any]) -> mx.array:
        """What the head is given, (rows, tokens, width)."""
        seen: list[mx.array] = []

        def keep(hidden: mx.array) -> mx.array:
            seen.append(hidden)
            return hidden[:, :1]

        with self._picking(keep):
            self.model(ids, cache=caches)
        return seen[0]

    @contextmanager
    def _picking(self, pick: Pick) -> Iterator[list[bool]]:
        picked: list[bool] = []

        def note(hidden: mx.array) -> mx.array:
            picked.append(True)
            return pick(hidden)

        self.pick = note
        try:
            yield picked
        finally:
            self.pick = None

    def apply(self, hidden: mx.array) -> mx.array:
        return hidden if self.pick is None else self.pick(hidden)


class _Wrapped(nn.Module):
    """Stands where `inner` stood and has all that it has."""

    def __init__(self, inner: nn.Module, head: OutputHead) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self["inner"] = inner
        object.__setattr__(self, "_head", head)

    def __getattr__(self, name: str) -> Any:
        return self[name] if name in self else getattr(self["inner"], name)


class _Picking(_Wrapped):
    def __call__(self, hidden: mx.array) -> mx.array:
        logits: mx.array = self.inner(self._head.apply(hidden))
        return logits


class _Tied(_Wrapped):
    """An embedding that is the head too."""

    def __call__(self, ids: mx.array) -> mx.array:
        embedded: mx.array = self.inner(ids)
        return embedded

    def as_linear(self, hidden: mx.array) -> mx.array:
        logits: mx.array = self.inner.as_linear(self._head.apply(hidden))
        return logits
