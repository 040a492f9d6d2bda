from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proxy_inference_engine.sampling.penalties import CountPenalty, RepetitionPenalty, Tally
from tests.unit.sampling.reference import float32

token_ids = st.lists(st.integers(0, 9), max_size=40)


@given(token_ids, token_ids)
def test_tally_counts_as_a_counter_does(first: list[int], later: list[int]) -> None:
    tally = Tally(first)
    for token_id in later:
        tally.add(token_id)
    for token_id in first:
        tally.remove(token_id)
    assert dict(zip(tally.ids.tolist(), tally.counts.tolist(), strict=True)) == Counter(later)


def test_tally_grows() -> None:
    tally = Tally([5])
    for token_id in range(1000):
        tally.add(token_id)
    assert sorted(tally.ids.tolist()) == list(range(1000))
    assert tally.counts.sum() == 1001


@given(token_ids, token_ids, st.integers(0, 12))
def test_repetition_counts_the_window_of_prompt_and_output(prompt: list[int], output: list[int], window: int) -> None:
    penalty = RepetitionPenalty(2.0, window, prompt)
    for token_id in output:
        penalty.accept(token_id)
    logits = float32([4, -4] * 5)
    penalty.apply(logits)
    history = prompt + output
    seen = set(history[-window:] if window else history)
    assert logits.tolist() == [{4: 2, -4: -8}[raw] if i in seen else raw for i, raw in enumerate([4, -4] * 5)]


def test_repetition_keeps_impossible_tokens_impossible() -> None:
    logits = float32([-np.inf, 0, 3])
    RepetitionPenalty(1.5, 0, [0, 1, 2]).apply(logits)
    assert logits.tolist() == [-np.inf, 0, 2]


def test_frequency_counts_each_time_and_presence_once() -> None:
    penalty = CountPenalty(0.5, 2.0)
    for token_id in (1, 2, 1, 1):
        penalty.accept(token_id)
    logits = float32([1, 1, 1, -np.inf])
    penalty.apply(logits)
    assert logits.tolist() == [1, -2.5, -1.5, -np.inf]


def test_nothing_seen_changes_nothing() -> None:
    logits = float32([1, 2])
    CountPenalty(2.0, 2.0).apply(logits)
    RepetitionPenalty(2.0, 5, []).apply(logits)
    assert logits.tolist() == [1, 2]
