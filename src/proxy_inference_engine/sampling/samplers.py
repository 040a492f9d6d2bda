"""The sampler of one choice, or several where sampling differs from state to state."""

from collections.abc import Collection

from proxy_inference_engine.runners.base import Logits
from proxy_inference_engine.sampling.sampler import Allowed, Sampler
from proxy_inference_engine.types import Request, Sampling, State


class Samplers:
    """Every sampler that counts tokens takes in every one, so that the penalties of each state know the whole text."""

    __slots__ = ("_by_state", "_counting", "_default")

    def __init__(self, request: Request, choice: int, num_tokens: int) -> None:
        def make(sampling: Sampling) -> Sampler:
            return Sampler(sampling, choice=choice, prompt_ids=request.prompt_ids, num_tokens=num_tokens)

        self._default = make(request.sampling)
        self._by_state = {state: make(sampling) for state, sampling in request.state_sampling.items()}
        self._counting = [each for each in (self._default, *self._by_state.values()) if each.counts]

    def sample(
        self,
        logits: Logits,
        position: int,
        banned: Collection[int] = (),
        allowed: Allowed | None = None,
        state: State = "text",
    ) -> int:
        return self.of(state).sample(logits, position, banned, allowed)

    def of(self, state: State) -> Sampler:
        """The one that chooses the tokens of a state."""
        return self._by_state.get(state, self._default) if self._by_state else self._default

    def accept(self, token_id: int) -> None:
        for sampler in self._counting:
            sampler.accept(token_id)
