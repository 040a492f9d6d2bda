"""Tokens for trials of a model whose texts nobody knows."""

import numpy as np


def ordinary_ids(num_tokens: int, count: int) -> list[int]:
    """From the middle of a vocabulary. At its ends are control tokens, and after some of those in a row, which no text
    has, a model's logits are little more than rounding errors."""
    eighth = num_tokens // 8
    ids: list[int] = np.random.default_rng(0).integers(eighth, num_tokens - eighth, count).tolist()
    return ids
