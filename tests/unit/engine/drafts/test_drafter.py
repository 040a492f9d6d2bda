"""What a drafter proposes from a client's draft, and what it learns from the outcome."""

from itertools import pairwise

import numpy as np
import pytest

from proxy_inference_engine.engine.drafts.speculation import MAX_DRAFT, Drafter
from proxy_inference_engine.runners.base import TokenIds

_PROMPT = tuple(b"tell me more ")


def _array(text: str) -> TokenIds:
    return np.array(list(text.encode()), np.int32)


@pytest.mark.parametrize(
    ("draft", "said", "proposed"),
    [
        ("abcdefghijkl", "", "abcdefgh"),
        ("abcdefghijkl", "ab", "cdefghij"),
        ("abcdefghijkl", "abcdefghij", "kl"),
        ("abcdefghijkl", "abcdefghijkl", ""),
        ("abcdefghijkl", "abX", ""),
        ("abcdefghijkl", "abXYef", "ghijkl"),
        ("abcdefghijkl", "XYZabc", "defghijk"),
        ("abcdefghijkl", "abXkl", ""),
        ("ab1ab2ab3", "ab2", "ab3"),
        ("q", "q", ""),
        ("q", "x", ""),
    ],
)
def test_a_draft_is_followed_and_found_again(draft: str, said: str, proposed: str) -> None:
    """Each as if all of it had been said since the last look."""
    drafter = Drafter(_array(draft), len(_PROMPT))
    ids = np.concatenate([np.array(_PROMPT, np.int32), _array(said)])
    assert bytes(drafter.propose(ids, 100).tolist()).decode() == proposed


def test_after_a_change_the_next_place_in_the_draft_is_taken() -> None:
    drafter = Drafter(_array("do x; end; do y; end; do z; end;"), 0)
    for said, proposed in [("do x; end; do y", "; end; d"), ("do x; end; do y??; end", "; do z; ")]:
        assert bytes(drafter.propose(_array(said), 8).tolist()).decode() == proposed


def test_proposals_grow_with_success_and_shrink_with_failure() -> None:
    drafter = Drafter(np.arange(10_000, dtype=np.int32), 0)
    lengths = []
    num_said = 0
    for is_right in (True, True, True, False, False, False, False, True):
        proposed = drafter.propose(np.arange(num_said, dtype=np.int32), 1000)
        num_right = len(proposed) if is_right else len(proposed) // 2
        drafter.observe(len(proposed), num_right)
        num_said += num_right
        lengths.append(len(proposed))
    assert lengths == [8, 16, MAX_DRAFT, MAX_DRAFT, 16, 8, 4, 4]
    assert drafter.num_accepted + drafter.num_rejected == sum(lengths)


def test_a_drafter_that_is_always_wrong_falls_silent_for_longer_and_longer() -> None:
    """The text looks like the draft again and again, and never goes on like it."""
    drafter = Drafter(_array("abX" * 50), 0)
    text = _array("ab" * 500)
    proposals = []
    for length in range(4, len(text), 2):
        if num_proposed := len(drafter.propose(text[:length], 100)):
            drafter.observe(num_proposed, 0)
            proposals.append((length, num_proposed))
    gaps = [second[0] - first[0] for first, second in pairwise(proposals)]
    assert gaps == sorted(gaps) and gaps[-1] >= 64
    assert {num for _, num in proposals[2:]} == {4}
