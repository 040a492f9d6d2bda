"""Log-probabilities under the model's own distribution: logits as they came, before bias, penalties, temperature."""

import math

import numpy as np

from proxy_inference_engine.runners.base import Logits, TokenIds
from proxy_inference_engine.sampling.filters import top_k
from proxy_inference_engine.types import Logprob

_LOWEST = -9999.0  # JSON has no infinity


def logprob_of(logits: Logits, token_id: int, num_top: int) -> Logprob:
    """The log-probability of one token, with the `num_top` likeliest in falling order, equals by id.

    Finite whatever the logits are.
    """
    best = float(logits.max())
    if not math.isfinite(best):
        return Logprob(token_id, _LOWEST)
    log_total = best + math.log(_sum_of_exp(logits, best))
    top: list[tuple[int, float]] = []
    if num_top > 0:
        ids = top_k(logits, num_top)
        values = logits[ids]
        ranked = np.argsort(-values, kind="stable")
        top = [(int(ids[rank]), max(float(values[rank]) - log_total, _LOWEST)) for rank in ranked]
    return Logprob(token_id, max(float(logits[token_id]) - log_total, _LOWEST), tuple(top))


def prompt_logprobs(logits: Logits, token_ids: TokenIds, num_top: int) -> list[Logprob]:
    """The log-probabilities of a prompt's tokens: row i (n, vocabulary) predicts token i (n,).

    Row by row, so that chunking cannot change a value.
    """
    return [logprob_of(row, int(token_id), num_top) for row, token_id in zip(logits, token_ids, strict=True)]


def _sum_of_exp(logits: Logits, best: float) -> float:
    with np.errstate(over="ignore"):
        weights = logits - np.float32(best)
    return float(np.exp(weights, out=weights).sum())
