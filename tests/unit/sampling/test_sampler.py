import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import Logits
from proxy_inference_engine.sampling.sampler import InvalidLogits, RandomStream, Sampler, stream_key, uniform
from proxy_inference_engine.types import Sampling
from tests.unit.sampling.reference import SlowSampler, float32

GREEDY = Sampling(seed=0, temperature=0.0)
PLAIN = Sampling(seed=0)
VOCABULARY = 12

samplings = st.builds(
    Sampling,
    seed=st.integers(0, 2**63),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 3, 20]),
    top_p=st.sampled_from([0.3, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    repetition_window=st.sampled_from([0, 1, 5]),
    frequency_penalty=st.sampled_from([0.0, 0.7, -1.0]),
    presence_penalty=st.sampled_from([0.0, 0.4]),
    dry_multiplier=st.sampled_from([0.0, 0.8]),
    dry_allowed_length=st.integers(0, 3),
    dry_breakers=st.sampled_from([frozenset[int](), frozenset({2})]),
    xtc_probability=st.sampled_from([0.0, 0.5, 1.0]),
    xtc_threshold=st.sampled_from([0.0, 0.1, 0.3]),
    typical_p=st.sampled_from([1.0, 0.5]),
    top_n_sigma=st.sampled_from([0.0, 1.0]),
    dynatemp_range=st.sampled_from([0.0, 0.5]),
    dynatemp_exponent=st.sampled_from([1.0, 2.0]),
    mirostat=st.sampled_from([0, 0, 2]),
    mirostat_tau=st.sampled_from([1.0, 3.0]),
    logit_bias=st.sampled_from([{}, {0: 2.5, 3: -100.0}]),
)


def _sampler(
    sampling: Sampling, *, choice: int = 0, prompt_ids: list[int] | None = None, num: int = VOCABULARY
) -> Sampler:
    return Sampler(sampling, choice=choice, prompt_ids=prompt_ids or [], num_tokens=num)


def _row(seed: int, num: int = VOCABULARY, spread: float = 2.0) -> Logits:
    return np.random.default_rng(seed).normal(0, spread, num).astype(np.float32)


def _tokens(sampler: Sampler, num: int = 60, size: int = VOCABULARY) -> list[int]:
    return [sampler.sample(_row(position, size), position) for position in range(num)]


def _support(sampling: Sampling, logits: list[float], banned: tuple[int, ...] = ()) -> set[int]:
    """What 400 draws from one row give."""
    sampler = _sampler(sampling, num=len(logits))
    return {sampler.sample(float32(logits), position, banned) for position in range(400)}


@given(samplings, st.lists(st.integers(0, VOCABULARY - 1), max_size=12), st.integers(0, 2**32), st.integers(0, 3))
def test_agrees_with_the_documented_steps(sampling: Sampling, prompt_ids: list[int], seed: int, choice: int) -> None:
    """Eight tokens in a row, each accepted; close calls, where float32 and float64 may differ, are left out."""
    sampler = _sampler(sampling, choice=choice, prompt_ids=prompt_ids)
    slow = [SlowSampler(sampling, choice, prompt_ids, nudge) for nudge in (0.0, -1e-4, 1e-4)]
    for position in range(len(prompt_ids), len(prompt_ids) + 8):
        logits = _row(seed + position)
        banned = {4} if position % 2 else frozenset[int]()
        expected = {one.sample(logits.tolist(), position, banned) for one in slow}
        assume(len(expected) == 1)
        token_id = sampler.sample(logits, position, banned)
        assert {token_id} == expected
        sampler.accept(token_id)
        for one in slow:
            one.output_ids.append(token_id)


@pytest.mark.parametrize("num", [VOCABULARY, 5000])
def test_same_seed_same_tokens_whatever_happened_between(num: int) -> None:
    sampling = Sampling(seed=7, top_p=0.95)
    tokens = _tokens(_sampler(sampling, num=num), size=num)
    assert tokens == _tokens(_sampler(sampling, num=num), size=num)
    backwards = _sampler(sampling, num=num)
    assert tokens[::-1] == [backwards.sample(_row(p, num), p) for p in reversed(range(60))]


def test_seeds_choices_and_positions_differ() -> None:
    tokens = _tokens(_sampler(PLAIN))
    assert tokens != _tokens(_sampler(replace(PLAIN, seed=1)))
    assert tokens != _tokens(_sampler(PLAIN, choice=1))
    assert len(_support(PLAIN, [0.0] * 4)) == 4


def test_frequencies_follow_the_softmax() -> None:
    logits = float32([2, 1, 0, -1, -math.inf, 1.5])
    sampler = _sampler(replace(PLAIN, seed=3, temperature=1.4), num=6)
    drawn = np.bincount([sampler.sample(logits, position) for position in range(5000)], minlength=6)
    expected = np.exp(logits.astype(np.float64) / 1.4)
    expected *= 5000 / expected.sum()
    possible = expected > 0
    assert drawn[4] == 0
    assert ((drawn - expected)[possible] ** 2 / expected[possible]).sum() < 18.5  # chi-square, 4 degrees, p = 0.001


def test_greedy_takes_the_lowest_of_equals() -> None:
    assert _sampler(GREEDY, num=4).sample(float32([1, 5, 5, 2]), 0) == 1


def test_a_tiny_temperature_is_greedy_and_a_number() -> None:
    for temperature in (1e-3, 1e-30, 1e-300, 5e-324):
        sampler = _sampler(replace(PLAIN, temperature=temperature), num=5000)
        assert [sampler.sample(_row(p, 5000), p) for p in range(20)] == [int(_row(p, 5000).argmax()) for p in range(20)]


def test_absurd_logits_are_still_logits() -> None:
    """The differences overflow float32: as good as impossible, and no warning."""
    assert _support(replace(PLAIN, repetition_penalty=1.5), [-3e38, 3e38, 0]) == {1}
    assert _support(replace(PLAIN, temperature=1e-30), [-3e9, 0, -1e9]) == {1}


@pytest.mark.parametrize("shift", [-1e4, -200.0, -60.0, -40.0, 40.0, 60.0, 100.0, 1e4])
def test_where_the_logits_lie_does_not_matter(shift: float) -> None:
    row = (np.round(_row(3) * 8) / 8).astype(np.float32)  # as they are, wherever they lie
    sampler = _sampler(replace(PLAIN, top_p=0.9))
    with np.errstate(over="ignore"):  # as the engine's thread has it
        for position in range(40):
            assert sampler.sample((row + shift).astype(np.float32), position) == sampler.sample(row, position)


@pytest.mark.parametrize("sampling", [GREEDY, PLAIN, Sampling(seed=0, top_p=0.9, repetition_penalty=1.2)])
@pytest.mark.parametrize("num", [3, 1000, 4096])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_end_the_request(sampling: Sampling, num: int, value: float) -> None:
    sampler = _sampler(sampling, prompt_ids=[0, 1], num=num)
    for place in (0, num // 2, num - 1):
        logits = _row(1, num)
        logits[place] = value
        with pytest.raises(InvalidLogits):
            sampler.sample(logits, 5)
    assert 0 <= sampler.sample(_row(1, num), 5) < num


def test_masked_tokens_are_never_drawn() -> None:
    masked = [-math.inf, 1.0, -math.inf, 1.1, -math.inf]
    for sampling in (PLAIN, replace(PLAIN, top_k=4), replace(PLAIN, top_p=0.9999), replace(PLAIN, temperature=2.0)):
        assert _support(sampling, masked) == {1, 3}
    everything = Sampling(seed=0, top_k=4, top_p=0.99, min_p=0.01, xtc_probability=1.0, xtc_threshold=0.0)
    assert _support(everything, masked) == {1}


def test_nothing_left_ends_the_request() -> None:
    for sampling in (GREEDY, PLAIN):
        sampler = _sampler(sampling, num=2)
        with pytest.raises(InvalidLogits):
            sampler.sample(float32([1, 2]), 0, {0, 1})
        with pytest.raises(InvalidLogits):
            sampler.sample(float32([-math.inf, 3]), 0, [1])


def test_banned_tokens_hold_for_one_call_and_against_any_bias() -> None:
    sampler = _sampler(replace(GREEDY, logit_bias={1: 100.0}), num=3)
    logits = float32([0, 1, 2])
    assert sampler.sample(logits, 0, frozenset({1})) == 2
    assert sampler.sample(logits, 1) == 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("odd", [math.nan, math.inf, 50.0, -math.inf])
def test_what_a_banned_token_has_for_a_logit_does_not_matter(temperature: float, odd: float) -> None:
    logits = [1.0, odd, 2.0, 0.5]
    sampling = Sampling(seed=0, temperature=temperature)
    assert _support(sampling, logits, (1,)) == _support(sampling, [1.0, -60.0, 2.0, 0.5], (1,))


@pytest.mark.parametrize("temperature", [0.0, 0.7, 2.0])
def test_a_bias_of_100_forces_and_minus_100_bans(temperature: float) -> None:
    logits = [3.0, 14.0, -9.0, 12.0]
    assert _support(Sampling(seed=0, temperature=temperature, logit_bias={2: 100.0}), logits) == {2}
    assert 1 not in _support(Sampling(seed=0, temperature=temperature, logit_bias={1: -100.0}), logits)


def test_a_bias_against_every_token_changes_nothing() -> None:
    bias = dict.fromkeys(range(VOCABULARY), -100.0)
    assert _tokens(_sampler(replace(GREEDY, logit_bias=bias))) == _tokens(_sampler(GREEDY))


@pytest.mark.parametrize(
    ("sampling", "logits", "expected"),
    [
        # top_k first: 40 + 30 is all that top_p then sees, and 40 / 70 is above a half. The other way round both stay.
        (Sampling(seed=0, top_k=2, top_p=0.5), [40, 30, 20, 10], {0}),
        # top_p leaves 40, 30, 20; min_p leaves 40 and 30; their shares are above XTC's threshold only after that.
        (Sampling(seed=0, top_p=0.8, min_p=0.6, xtc_probability=1.0, xtc_threshold=0.42), [40, 30, 20, 10], {1}),
        # Temperature before the filters: 81 : 9 : 9 at 2 is 9 : 3 : 3, and 0.3 of the best keeps all.
        (Sampling(seed=0, temperature=2.0, min_p=0.3), [81, 9, 9], {0, 1, 2}),
        (Sampling(seed=0, temperature=1.0, min_p=0.3), [81, 9, 9], {0}),
        # The bias comes before the filters.
        (Sampling(seed=0, top_k=1, logit_bias={2: 5.0}), [5, 4, 3], {2}),
    ],
)
def test_order_of_the_filters(sampling: Sampling, logits: list[float], expected: set[int]) -> None:
    assert _support(sampling, [math.log(weight) for weight in logits]) == expected


def test_the_bias_comes_before_the_repetition_penalty() -> None:
    """(-1 + 3) / 4 = 0.5; the other way it would be -1 * 4 + 3 = -1."""
    sampler = Sampler(
        Sampling(seed=0, temperature=0.0, repetition_penalty=4.0, logit_bias={0: 3.0}),
        choice=0,
        prompt_ids=[0],
        num_tokens=2,
    )
    assert sampler.sample(float32([-1, 0.4]), 1) == 0
    assert sampler.sample(float32([-1, 0.6]), 1) == 1


def test_repetition_comes_before_frequency() -> None:
    sampler = _sampler(replace(GREEDY, repetition_penalty=2.0, frequency_penalty=1.0), num=2)
    sampler.accept(0)
    assert sampler.sample(float32([4, 1.2]), 1) == 1  # 4 / 2 - 1 = 1; the other way (4 - 1) / 2 = 1.5
    assert sampler.sample(float32([4, 0.9]), 1) == 0


def test_xtc_acts_as_often_as_its_probability_and_with_its_own_number() -> None:
    sampling = Sampling(seed=5, xtc_probability=0.3, xtc_threshold=0.2)
    sampler = _sampler(sampling, num=2)
    tokens = [sampler.sample(float32([1, 0]), position) for position in range(2000)]
    key = stream_key(5, 0)
    acts = [uniform(key, position, RandomStream.XTC) < 0.3 for position in range(2000)]
    assert {token for token, acted in zip(tokens, acts, strict=True) if acted} == {1}
    assert sum(acts) == pytest.approx(600, abs=80)
    rest = [token for token, acted in zip(tokens, acts, strict=True) if not acted]
    assert rest.count(0) / len(rest) == pytest.approx(math.e / (1 + math.e), abs=0.04)


def test_samplers_share_nothing() -> None:
    sampling = Sampling(seed=1, frequency_penalty=1.0, presence_penalty=1.0, repetition_penalty=1.5, dry_multiplier=1.0)
    alone = _sampler(sampling, prompt_ids=[1, 2])
    expected = _tokens(alone)
    noisy = _sampler(sampling, prompt_ids=[1, 2])
    for token_id in range(VOCABULARY):
        noisy.accept(token_id)
    assert _tokens(noisy) != expected
    assert _tokens(_sampler(sampling, prompt_ids=[1, 2])) == expected
    assert _tokens(alone) == expected


@given(samplings)
def test_the_logits_stay_as_they_are(sampling: Sampling) -> None:
    logits = _row(0)
    logits.setflags(write=False)
    sampler = _sampler(sampling, prompt_ids=[1, 2, 1, 2])
    sampler.accept(sampler.sample(logits, 4, {3}))
    sampler.sample(logits, 5)


@pytest.mark.parametrize("sampling", [GREEDY, PLAIN, Sampling(seed=0, top_p=0.9), Sampling(seed=0, top_k=40)])
def test_the_place_of_a_row_in_memory_does_not_matter(sampling: Sampling) -> None:
    num = 4099
    sampler = _sampler(sampling, num=num)
    for position in range(20):
        row = _row(position, num)
        alone = sampler.sample(row, position)
        for offset in range(1, 17):
            batch = np.zeros(num + 16, dtype=np.float32)
            batch[offset : offset + num] = row
            assert sampler.sample(batch[offset : offset + num], position) == alone


# What a grammar allows


def _mask(*ids: int, num: int = VOCABULARY) -> NDArray[np.bool_]:
    allowed = np.zeros(num, np.bool_)
    allowed[list(ids)] = True
    return allowed


@given(samplings, st.sets(st.integers(0, VOCABULARY - 1), min_size=2), st.integers(0, 2**32))
def test_what_is_not_allowed_is_as_if_banned(sampling: Sampling, ids: set[int], seed: int) -> None:
    masked, banning = (_sampler(sampling, prompt_ids=[1, 2, 1, 2]) for _ in range(2))
    allowed = _mask(*ids)
    others = set(range(VOCABULARY)) - ids
    for position in range(4, 10):
        logits = _row(seed + position)
        banned = {min(ids)} if position % 2 else set[int]()
        token_id = masked.sample(logits, position, banned, allowed)
        assert token_id == banning.sample(logits, position, banned | others)
        assert token_id in ids - banned
        masked.accept(token_id)
        banning.accept(token_id)


@pytest.mark.parametrize(
    "sampling", [GREEDY, PLAIN, Sampling(seed=0, top_p=0.9), Sampling(seed=0, top_k=40, min_p=0.1)]
)
@pytest.mark.parametrize("num_allowed", [1, 2, 4095, 4096, 4097, 9999, 10_000])
def test_short_and_long_lists_of_the_allowed_agree(sampling: Sampling, num_allowed: int) -> None:
    num = 10_000
    ids = np.random.default_rng(num_allowed).permutation(num)[:num_allowed]
    allowed = _mask(*ids.tolist(), num=num)
    sampler = _sampler(sampling, num=num)
    for position in range(12):
        logits = _row(position, num)
        expected = sampler.sample(np.where(allowed, logits, np.float32(-np.inf)), position)
        assert sampler.sample(logits, position, (), allowed) == expected
        assert allowed[expected]


def test_all_allowed_is_no_mask() -> None:
    sampler = _sampler(PLAIN)
    for position in range(50):
        row = _row(position)
        assert sampler.sample(row, position, (), _mask(*range(VOCABULARY))) == sampler.sample(row, position)


@pytest.mark.parametrize("sampling", [GREEDY, PLAIN, Sampling(seed=0, logit_bias={3: -100.0, 4: -100.0})])
def test_where_only_banned_ids_pass_they_are_let_through(sampling: Sampling) -> None:
    sampler = _sampler(sampling)
    for position in range(20):
        assert sampler.sample(_row(position), position, {3, 4}, _mask(3, 4)) in (3, 4)
        assert sampler.sample(_row(position), position, {3}, _mask(3, 4)) == 4


def test_a_single_allowed_id_is_taken_whatever_its_logit() -> None:
    sampler = _sampler(Sampling(seed=0, logit_bias={2: -100.0}, repetition_penalty=5.0), prompt_ids=[2] * 9)
    logits = np.full(VOCABULARY, 50, np.float32)
    logits[2] = -1e30
    assert sampler.sample(logits, 9, (), _mask(2)) == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bad_logits_of_the_allowed_are_found(bad: float) -> None:
    logits = _row(0)
    logits[[2, 3]] = bad
    with pytest.raises(InvalidLogits):
        _sampler(PLAIN).sample(logits, 0, (), _mask(2, 3))


@given(samplings)
def test_a_mask_leaves_logits_and_itself_as_they_are(sampling: Sampling) -> None:
    logits, allowed = _row(0), _mask(1, 2, 5)
    logits.setflags(write=False)
    allowed.setflags(write=False)
    sampler = _sampler(sampling, prompt_ids=[1, 2, 1, 2])
    sampler.accept(sampler.sample(logits, 4, {1}, allowed))
    sampler.sample(logits, 5, {1, 2, 5}, allowed)
