import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_inference_engine.sampling.dry import DryPenalty, match_lengths
from proxy_inference_engine.types import Sampling
from tests.unit.sampling import reference

token_ids = st.lists(st.integers(0, 3), max_size=30)


def _penalties(penalty: DryPenalty, num_tokens: int = 10) -> dict[int, float]:
    logits = np.zeros(num_tokens, dtype=np.float32)
    penalty.apply(logits)
    return {token_id: -logit for token_id, logit in enumerate(logits.tolist()) if logit}


@given(token_ids, token_ids, st.integers(0, 4), st.frozensets(st.integers(0, 3), max_size=2))
def test_agrees_with_the_definition(
    prompt: list[int], output: list[int], allowed_length: int, breakers: frozenset[int]
) -> None:
    sampling = Sampling(
        seed=0, dry_multiplier=0.5, dry_base=1.5, dry_allowed_length=allowed_length, dry_breakers=breakers
    )
    penalty = DryPenalty(sampling, prompt)
    for token_id in output:
        penalty.accept(token_id)
    assert _penalties(penalty) == pytest.approx(reference.dry(prompt + output, sampling), rel=1e-5)


@pytest.mark.parametrize(
    ("token_ids", "breakers", "expected"),
    [
        ([1, 2, 3, 1, 2], (), {3: 1.0}),  # 1 2 was followed by 3
        ([9, 1, 2, 3, 9, 1, 2], (), {3: 2.0}),  # one token more: base times as much
        ([1, 2, 3, 4, 2], (), {}),  # a match of one is allowed
        ([1, 2, 3, 9, 1, 2, 4, 9, 1, 2], (), {3: 1.0, 4: 2.0}),
        ([1, 2, 3, 1, 2], (1,), {}),  # the match ends at the breaker
        ([1, 2, 3, 1, 2], (2,), {}),
        ([1, 2, 3, 1, 2], (3,), {}),  # a breaker is never penalised
        ([5, 5, 5], (), {5: 1.0}),
        ([], (), {}),
        ([1], (), {}),
    ],
)
def test_examples(token_ids: list[int], breakers: tuple[int, ...], expected: dict[int, float]) -> None:
    sampling = Sampling(seed=0, dry_multiplier=1.0, dry_base=2.0, dry_breakers=frozenset(breakers))
    assert _penalties(DryPenalty(sampling, token_ids)) == expected


def test_a_long_loop_neither_overflows_nor_outgrows_its_room() -> None:
    penalty = DryPenalty(Sampling(seed=0, dry_multiplier=5.0, dry_base=4.0), [])
    for _ in range(3000):
        penalty.accept(7)
    assert _penalties(penalty) == pytest.approx({7: 1e30})


def test_a_repetitive_prompt_takes_linear_time() -> None:
    start = time.process_time()
    lengths = match_lengths([1] * 50_000, frozenset())
    assert lengths == [*range(1, 50_000), 0]
    assert time.process_time() - start < 30  # walking back at every position would take minutes
