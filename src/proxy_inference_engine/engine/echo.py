"""Log-probabilities of a prompt's own tokens, as its passes come in."""

import numpy as np

from proxy_inference_engine.engine.sequence import Sequence
from proxy_inference_engine.runners.base import Logits
from proxy_inference_engine.sampling.logprobs import prompt_logprobs
from proxy_inference_engine.sampling.sampler import InvalidLogits


def add_prompt_logprobs(sequence: Sequence, first: int, logits: Logits) -> None:
    """Row i of the logits stands at position first + i and predicts the token after it. Raises InvalidLogits."""
    num_top = sequence.request.num_prompt_logprobs
    assert num_top is not None
    logits = logits[len(sequence.prompt_logprobs) - (first + 1) :]  # a preempted prompt repeats known positions
    targets = sequence.ids[len(sequence.prompt_logprobs) : sequence.num_prompt][: len(logits)]
    if np.isnan(logits[: len(targets), 0]).any():
        raise InvalidLogits
    sequence.prompt_logprobs.extend(prompt_logprobs(logits[: len(targets)], targets, num_top))
