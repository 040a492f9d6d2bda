"""Mirostat: the surprise of a text comes to its target, whatever the model's own is."""

import math

import numpy as np
import pytest

from proxy_inference_engine.sampling.mirostat import Mirostat
from proxy_inference_engine.sampling.sampler import Sampler
from proxy_inference_engine.types import Sampling

_NUM = 2000


def surprises(sampling: Sampling, num_tokens: int = 400) -> list[float]:
    """Of each drawn token under the model's own distribution, in bits."""
    sampler = Sampler(sampling, choice=0, prompt_ids=(), num_tokens=_NUM)
    logits = (-1.1 * np.log(np.arange(1, _NUM + 1))).astype(np.float32)  # as those of words fall off
    shares = np.exp(logits) / np.exp(logits).sum()
    seen = []
    for position in range(num_tokens):
        token_id = sampler.sample(logits, position)
        sampler.accept(token_id)
        seen.append(-math.log2(shares[token_id]))
    return seen


@pytest.mark.parametrize("version", [1, 2])
def test_a_smaller_target_is_less_surprising(version: int) -> None:
    means = []
    for target in (1.0, 3.0, 5.0):
        seen = surprises(Sampling(seed=3, mirostat=version, mirostat_tau=target, mirostat_eta=0.2))
        means.append(sum(seen) / len(seen))
    assert means == sorted(means) and means[0] + 1 < means[2]


@pytest.mark.parametrize("version", [1, 2])
def test_something_is_always_kept(version: int) -> None:
    mirostat = Mirostat(Sampling(seed=0, mirostat=version, mirostat_tau=0.0, mirostat_eta=1.0))
    for weights in ([1.0], [1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1e-30, 1e-30]):
        for _ in range(20):
            kept = mirostat.keep(np.array(weights, dtype=np.float32))
            assert kept.size and weights[kept[0]] == 1.0
            mirostat.observe(1e-20)


def test_a_token_that_a_grammar_forced_teaches_nothing() -> None:
    sampling = Sampling(seed=1, mirostat=2, mirostat_tau=2.0)
    logits = np.zeros(50, dtype=np.float32)
    one, other = (Sampler(sampling, choice=0, prompt_ids=(), num_tokens=50) for _ in range(2))
    for position in range(20):
        token_id = one.sample(logits, position)
        assert other.sample(logits, position) == token_id
        one.accept(token_id)
        other.accept(token_id)
        other.accept(7)  # forced


def test_the_device_leaves_them_to_the_host() -> None:
    sampler = Sampler(Sampling(seed=1, mirostat=1), choice=0, prompt_ids=(), num_tokens=4)
    assert sampler.counts
