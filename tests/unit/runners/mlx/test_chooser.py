"""The chooser against the sampler of the host, one token after another, and its own rules."""

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import Logits, Want
from proxy_inference_engine.sampling.sampler import InvalidLogits, Sampler, stream_key, uniform
from proxy_inference_engine.types import Sampling
from tests.wider import wider

mx = pytest.importorskip("mlx.core")

from proxy_inference_engine.runners.mlx.chooser import DeviceChooser  # noqa: E402
from proxy_inference_engine.runners.mlx.logits import LazyLogits  # noqa: E402

GREEDY = Sampling(seed=0, temperature=0.0)
PLAIN = Sampling(seed=0)
CLOSE = 1e-4
NOISE = 1e-5  # of float32 exponentials, with room for those of other devices
NUMBERS = [0.0, 1e-12, 0.01, 0.1, 0.3, 0.499, 0.501, 0.77, 0.95, 0.999, 1 - 1e-9]

Row = NDArray[np.float32]


class Case(NamedTuple):
    logits: Row
    sampling: Sampling
    banned: Collection[int] = ()
    allowed: NDArray[np.bool_] | None = None
    position: int = 0

    @property
    def number(self) -> float:
        return uniform(stream_key(self.sampling.seed, 0), self.position)

    def want(self, logits: LazyLogits | None = None) -> Want:
        held = LazyLogits(mx.array(self.logits[None])) if logits is None else logits
        return Want(cast(Logits, held), self.sampling, self.number, self.banned, self.allowed)

    def expected(self) -> int:
        sampler = Sampler(self.sampling, choice=0, prompt_ids=(), num_tokens=len(self.logits))
        try:
            return sampler.sample(self.logits, self.position, self.banned, self.allowed)
        except InvalidLogits:
            return -1


def _choose(cases: list[Case]) -> list[int]:
    found: list[int] = DeviceChooser().choose([case.want() for case in cases]).read().tolist()
    return found


def _ids(logits: list[float], sampling: Sampling, numbers: list[float]) -> list[int]:
    held = cast(Logits, LazyLogits(mx.array([logits], dtype=mx.float32)))
    found: list[int] = DeviceChooser().choose([Want(held, sampling, n, (), None) for n in numbers]).read().tolist()
    return found


def _adjusted(case: Case) -> NDArray[np.float64]:
    adjusted = case.logits.copy()
    for token_id, bias in case.sampling.logit_bias.items():
        adjusted[token_id] += np.float32(bias)
    adjusted[list(case.banned)] = -np.inf
    if case.allowed is not None:
        narrowed = np.where(case.allowed, adjusted, -np.inf)
        adjusted = np.where(case.allowed, case.logits, -np.inf) if narrowed.max() == -np.inf else narrowed
    return adjusted.astype(np.float64)


def _is_close_call(case: Case, token_id: int) -> bool:
    """Whether the token is right for weights, shares or a number that differ a little, as rounding makes them.

    Tokens whose weights are near the smallest that is kept may be in or out: a high temperature makes equals of many.
    """
    adjusted = _adjusted(case)
    weights = np.exp((adjusted - adjusted.max()) / max(case.sampling.temperature, 1e-30))
    return any(_is_drawn(case, weights, token_id, nudge) for nudge in (0.0, -CLOSE, CLOSE))


def _is_drawn(case: Case, weights: NDArray[np.float64], token_id: int, nudge: float) -> bool:
    kept = _largest_kept(case.sampling, np.sort(weights)[::-1], nudge)
    is_sure, may_be = weights > kept[-1] * (1 + NOISE), weights >= kept[-1] * (1 - NOISE)
    if not may_be[token_id] or weights[token_id] == 0:
        return False
    low = weights[:token_id][is_sure[:token_id]].sum() / kept.sum()
    high = weights[: token_id + 1][may_be[: token_id + 1]].sum() / kept.sum()
    return bool(low - CLOSE <= case.number <= high + CLOSE)


def _largest_kept(sampling: Sampling, ordered: NDArray[np.float64], nudge: float) -> NDArray[np.float64]:
    """Steps 6 to 8 on weights of which the largest comes first."""
    if sampling.top_k:
        ordered = ordered[: sampling.top_k]
    if sampling.top_p < 1:
        ordered = ordered[: 1 + int(ordered.cumsum().searchsorted((sampling.top_p + nudge) * ordered.sum()))]
    is_likely: NDArray[np.bool_] = ordered >= sampling.min_p * (1 + nudge) * ordered[0]
    return ordered[is_likely]


def _logits(random: np.random.Generator, size: int) -> Row:
    logits = random.normal(0, random.choice([0.01, 1.0, 3.0, 20.0]), size)
    match random.integers(5):
        case 0:
            logits = np.round(logits)  # many equals
        case 1:
            logits[random.random(size) < 0.5] = -np.inf
            logits[random.integers(size)] = 0
        case 2:
            logits = logits.astype(np.float16)
        case _:
            pass
    return logits.astype(np.float32)


def _case(random: np.random.Generator, size: int, position: int) -> Case:
    pick: Any = random.choice
    sampling = Sampling(
        seed=int(random.integers(2**40)),
        temperature=float(pick([0.0, 1e-300, 1e-3, 0.3, 1.0, 1.0, 1.7, 50.0, 1e6])),
        top_k=int(pick([0, 0, 1, 2, 5, 40, 1000, 10**9])),
        top_p=float(pick([1.0, 1.0, 1e-9, 0.05, 0.5, 0.9, 0.95, 0.999999])),
        min_p=float(pick([0.0, 0.0, 1e-6, 0.05, 0.5, 1.0])),
        logit_bias={} if random.random() < 0.7 else {int(i): float(pick([-100, -1, 5])) for i in range(min(3, size))},
    )
    banned = () if random.random() < 0.7 else tuple(random.integers(size, size=3).tolist())
    allowed = None
    if random.random() < 0.4:
        allowed = random.random(size) < pick([0.02, 0.5])
        allowed[random.integers(size)] = True
    return Case(_logits(random, size), sampling, banned, allowed, position)


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_the_sampler(seed: int) -> None:
    """Mixtures of everything in one batch; where the two differ, float32 must be the reason."""
    random = np.random.default_rng(seed)
    size = int(random.choice([2, 5, 12, 127, 128, 129, 1000, 5000, 20000]))
    cases = [_case(random, size, position) for position in range(64 if size < 5000 else 24)]
    pairs = zip(cases, _choose(cases), strict=True)
    differing = [(case, found) for case, found in pairs if found != case.expected()]
    assert len(differing) <= 2
    for case, found in differing:
        assert found >= 0 and _is_close_call(case, found), (case, found, case.expected())


@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        PLAIN,
        replace(PLAIN, min_p=0.02),
        replace(PLAIN, top_k=30),
        replace(PLAIN, top_p=0.9),
        replace(PLAIN, top_k=500, top_p=0.8),
        replace(PLAIN, temperature=30.0, top_p=0.97),  # a nucleus of nearly everything
    ],
)
def test_every_path_alone(sampling: Sampling) -> None:
    random = np.random.default_rng(3)
    rows = [random.normal(0, 3, 32000).astype(np.float32) for _ in range(4)]
    cases = [Case(rows[i % 4], replace(sampling, seed=i)) for i in range(32)]
    for case, found in zip(cases, _choose(cases), strict=True):
        assert found == case.expected() or _is_close_call(case, found)


def test_a_batch_chooses_what_each_row_would_alone() -> None:
    random = np.random.default_rng(11)
    cases = [_case(random, 700, position) for position in range(40)]
    assert _choose(cases) == [_choose([case])[0] for case in cases]


def test_equals_rank_by_id() -> None:
    logits = [1.0, 5.0, 2.0, 5.0, 5.0, 1.0]
    assert _ids(logits, GREEDY, [0.5]) == [1]
    assert set(_ids(logits, replace(PLAIN, top_k=1), NUMBERS)) == {1}
    assert set(_ids(logits, replace(PLAIN, top_k=2), NUMBERS)) == {1, 3}
    assert set(_ids(logits, replace(PLAIN, top_p=0.6), NUMBERS)) == {1, 3}
    assert set(_ids(logits, replace(PLAIN, top_k=3, top_p=0.4), NUMBERS)) == {1, 3}
    assert set(_ids(logits, replace(PLAIN, top_p=1e-9), NUMBERS)) == {1}
    assert set(_ids(logits, replace(PLAIN, min_p=1.0), NUMBERS)) == {1, 3, 4}


@pytest.mark.parametrize("num", [1, 7, 130, 299])
def test_top_k_keeps_exactly_k_of_equals_in_many_blocks(num: int) -> None:
    numbers = ((np.arange(1200) + 0.5) / 1200).tolist()
    assert set(_ids([0.0] * 300, replace(PLAIN, top_k=num), numbers)) == set(range(num))
    assert set(_ids([-5.0, *[0.0] * 20000], replace(PLAIN, top_k=num), numbers[:400])) <= set(range(1, num + 1))


def test_what_has_no_weight_is_never_drawn() -> None:
    logits = [-math.inf] * 1000
    logits[137] = logits[900] = 0.0
    assert set(_ids(logits, PLAIN, NUMBERS)) == {137, 900}
    assert set(_ids(logits, replace(PLAIN, top_p=0.99), NUMBERS)) == {137, 900}
    assert _ids(logits, PLAIN, [0.0, 1 - 1e-12]) == [137, 900]


def test_sums_over_a_large_vocabulary_are_exact_enough() -> None:
    logits = np.random.default_rng(5).normal(0, 2, 128256).astype(np.float32)
    numbers = (np.arange(64) + 0.5) / 64
    held = cast(Logits, LazyLogits(mx.array(logits[None])))
    found = DeviceChooser().choose([Want(held, PLAIN, float(n), (), None) for n in numbers]).read()
    weights = np.exp(logits.astype(np.float64))
    highs = weights.cumsum()
    lows = highs - weights
    assert (lows[found] / highs[-1] - 1e-6 <= numbers).all()
    assert (numbers <= highs[found] / highs[-1] + 1e-6).all()


@pytest.mark.parametrize("sampling", [GREEDY, PLAIN, replace(PLAIN, top_p=0.9), replace(PLAIN, top_k=3, min_p=0.1)])
def test_logits_that_are_no_numbers(sampling: Sampling) -> None:
    """One bad row ends alone."""
    good = np.array([0, 3, 1, 2], dtype=np.float32)
    bad = [[0, math.nan, 1, 2], [0, math.inf, 1, 2], [math.nan] * 4, [-math.inf] * 4]
    cases = [Case(good, sampling), *(Case(np.array(row, dtype=np.float32), sampling) for row in bad)]
    assert _choose(cases) == [cases[0].expected(), -1, -1, -1, -1]


def test_masks_and_bans() -> None:
    logits = np.array([4, 3, 2, 1], dtype=np.float32)
    nan_first = np.array([math.nan, 3, 2, 1], dtype=np.float32)
    only = [np.array([i == j for i in range(4)]) for j in range(4)]
    none = np.zeros(4, dtype=np.bool_)
    table: list[tuple[Case, int]] = [
        (Case(logits, GREEDY, banned=(0,)), 1),
        (Case(logits, GREEDY, banned=(0, 0, 1)), 2),
        (Case(logits, GREEDY, allowed=only[2]), 2),
        (Case(logits, GREEDY, banned=(2,), allowed=only[2]), 2),  # only banned ones are allowed
        (Case(logits, GREEDY, banned=(3,), allowed=only[2] | only[3]), 2),
        (Case(logits, GREEDY, banned=(0, 1, 2, 3)), -1),
        (Case(logits, GREEDY, allowed=none), -1),
        (Case(nan_first, GREEDY, banned=(0,)), 1),
        (Case(nan_first, GREEDY, allowed=only[3]), 3),
        (Case(logits, replace(GREEDY, logit_bias={3: 50.0})), 3),
        (Case(logits, replace(GREEDY, logit_bias={3: 50.0}), banned=(3,)), 0),
    ]
    for case, expected in table:
        assert _choose([case]) == [expected]
    assert _choose([case for case, _ in table]) == [expected for _, expected in table]
    assert logits.tolist() == [4, 3, 2, 1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_floats(dtype: str) -> None:
    """Chosen as from their float32 values, ties included."""
    source = mx.array(np.random.default_rng(8).normal(0, 2, (40, 600))).astype(getattr(mx, dtype))
    rows = np.array(source.astype(mx.float32))
    samplings = [replace(PLAIN, seed=i, top_k=i % 9, top_p=0.9 if i % 2 else 1.0) for i in range(40)]
    cases = [Case(row, sampling) for row, sampling in zip(rows, samplings, strict=True)]
    wants = [case.want(LazyLogits(source, i, i + 1)) for i, case in enumerate(cases)]
    found = DeviceChooser().choose(wants).read().tolist()
    assert all(
        token == case.expected() or _is_close_call(case, token) for case, token in zip(cases, found, strict=True)
    )


def test_the_last_position_counts() -> None:
    source = mx.eye(6)
    wants = [
        Want(cast(Logits, LazyLogits(source, start, stop)), GREEDY, 0.0, (), None)
        for start, stop in [(0, 2), (2, 3), (3, 6)]
    ]
    other = Want(cast(Logits, LazyLogits(mx.eye(6)[::-1])), GREEDY, 0.0, (), None)
    assert DeviceChooser().choose(wants).read().tolist() == [1, 2, 5]
    assert DeviceChooser().choose([*wants, other]).read().tolist() == [1, 2, 5, 0]
    assert DeviceChooser().choose([]).read().tolist() == []


def test_lazy_logits_become_numpy() -> None:
    logits = LazyLogits(mx.arange(12).reshape(4, 3).astype(mx.bfloat16), 1, 3)
    assert len(logits) == 2
    assert logits.array.shape == (2, 3)
    assert np.asarray(logits).dtype == np.float32
    assert np.asarray(logits).tolist() == [[3, 4, 5], [6, 7, 8]]
    assert np.asarray(logits, dtype=np.float64).dtype == np.float64


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"temperature": 0.0, "top_k": 3, "logit_bias": {1: 2.0}}, True),
        ({"repetition_penalty": 1.1}, False),
        ({"frequency_penalty": -0.1}, False),
        ({"presence_penalty": 0.1}, False),
        ({"dry_multiplier": 0.8}, False),
        ({"xtc_probability": 0.5}, False),
    ],
)
def test_can_choose(changes: dict[str, Any], expected: bool) -> None:
    assert DeviceChooser().can_choose(replace(PLAIN, **changes)) is expected


def test_a_field_that_the_device_does_not_know_is_left_to_the_host() -> None:
    assert DeviceChooser().can_choose(wider(PLAIN))
    assert not DeviceChooser().can_choose(wider(PLAIN, added=1.0))
