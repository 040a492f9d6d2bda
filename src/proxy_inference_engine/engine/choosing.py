"""What a choice's next token may be, and how it is chosen: here from logits, or on the device that has them.

Changes nothing: appending and emitting is the engine's.
"""

from proxy_inference_engine.engine.sequence import Sequence
from proxy_inference_engine.runners.base import Chooser, Logits, Want
from proxy_inference_engine.types import Request, State

_NOTHING: frozenset[int] = frozenset()


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

    def is_end(self, sequence: Sequence, token_id: int) -> bool:
        return token_id in self.ends(sequence.request) or (sequence.matcher is not None and token_id in self._end_ids)

    def choose(self, sequence: Sequence, logits: Logits) -> int:
        """From logits (vocabulary,). Raises InvalidLogits."""
        matcher, banned = sequence.matcher, self._banned(sequence)
        if matcher is None:
            return sequence.samplers.sample(logits, sequence.num_tokens, banned)
        # Forced tokens are left to be found here when their log-probabilities are wanted: then each needs its logits.
        if sequence.request.num_top_logprobs is not None and (forced := matcher.forced()):
            return forced[0]
        return sequence.samplers.sample(logits, sequence.num_tokens, banned, matcher.mask(), matcher.state)

    def defer(self, sequence: Sequence, logits: Logits) -> Want | None:
        """What the device needs to choose; None where it can't. Guesses and log-probabilities need the logits here."""
        if self._chooser is None or sequence.drafter is not None or sequence.request.num_top_logprobs is not None:
            return None
        matcher, samplers = sequence.matcher, sequence.samplers
        state: State = "text" if matcher is None else matcher.state
        sampling = samplers.sampling(state)
        if not self._chooser.can_choose(sampling):
            return None
        number = samplers.number(sequence.num_tokens, state) if sampling.temperature > 0 else 0.0
        return Want(logits, sampling, number, self._banned(sequence), None if matcher is None else matcher.mask())

    def _banned(self, sequence: Sequence) -> frozenset[int]:
        limits = sequence.request.limits
        is_early = limits.min_tokens > 0 and sequence.num_generated < limits.min_tokens
        banned = self.ends(sequence.request) if is_early else _NOTHING
        if limits.ignore_eos:
            banned = banned | self._end_ids if banned else self._end_ids
        return banned
