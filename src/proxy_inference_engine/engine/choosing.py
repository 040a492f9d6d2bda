"""What a choice's next token may be, and how it is chosen: here from logits, or on the device that has them.

Appending and emitting is the engine's.
"""

from typing import get_args

from proxy_inference_engine.engine.sequence import Sequence
from proxy_inference_engine.runners.base import Chooser, Logits, Want
from proxy_inference_engine.types import Request, State

_NOTHING: frozenset[int] = frozenset()
_STATES: tuple[State, ...] = get_args(State)


class Choosing:
    """`chooser` None: every token is chosen here."""

    def __init__(self, end_ids: frozenset[int], chooser: Chooser | None) -> None:
        self._end_ids = end_ids
        self._chooser = chooser

    def ends(self, request: Request) -> frozenset[int]:
        """The tokens that end an answer to a request."""
        if request.limits.ignore_eos:
            return request.limits.stop_token_ids
        return self._end_ids | request.limits.stop_token_ids if request.limits.stop_token_ids else self._end_ids

    def prepare(self, sequence: Sequence) -> None:
        """Work out what would be the same at every token."""
        request, chooser = sequence.request, self._chooser
        sequence.ends = self.ends(request) if sequence.matcher is None else self.ends(request) | self._end_ids
        limits = request.limits
        sequence.banned = self._end_ids if limits.ignore_eos else _NOTHING
        if limits.min_tokens > 0:
            sequence.early_banned = self.ends(request) | sequence.banned
        # Guesses and log-probabilities need the logits here.
        if chooser is not None and sequence.drafter is None and request.num_top_logprobs is None:
            samplings = {state: sequence.samplers.of(state).sampling for state in _STATES}
            sequence.deferred_states = frozenset(state for state in _STATES if chooser.can_choose(samplings[state]))

    def choose(self, sequence: Sequence, logits: Logits) -> int:
        """From logits (vocabulary,). Raises InvalidLogits."""
        matcher, banned = sequence.matcher, _banned(sequence)
        if matcher is None:
            return sequence.samplers.sample(logits, sequence.num_tokens, banned)
        # Forced tokens are left to be found here when their log-probabilities are wanted: then each needs its logits.
        if sequence.request.num_top_logprobs is not None and (forced := matcher.forced()):
            return forced[0]
        return sequence.samplers.sample(logits, sequence.num_tokens, banned, matcher.mask(), matcher.state)

    def defer(self, sequence: Sequence, logits: Logits) -> Want | None:
        """What the device needs to choose; None where it can't."""
        matcher = sequence.matcher
        state: State = "text" if matcher is None else matcher.state
        if state not in sequence.deferred_states:
            return None
        sampler = sequence.samplers.of(state)
        sampling = sampler.sampling
        number = sampler.number(sequence.num_tokens) if sampling.temperature > 0 else 0.0
        banned = _banned(sequence) if sequence.early_banned else sequence.banned
        return Want(logits, sampling, number, banned, None if matcher is None else matcher.mask())


def _banned(sequence: Sequence) -> frozenset[int]:
    is_early = sequence.num_generated < sequence.request.limits.min_tokens
    return sequence.early_banned if is_early else sequence.banned
