"""The derived facts of a sequence, and what of it may come from the cache."""

import numpy as np
import pytest

from proxy_inference_engine.engine.sequence import Group
from proxy_inference_engine.runners.base import Unread
from proxy_inference_engine.types import Logprob
from tests.deferred import DeferredPicks
from tests.requests import make_request
from tests.unit.engine.driven import make_sequence


def test_a_new_sequence_is_its_prompt() -> None:
    sequence = make_sequence(make_request("hello", tenant="t"))
    assert bytes(sequence.ids.tolist()) == b"hello"
    assert (sequence.num_tokens, sequence.num_prompt, sequence.num_generated, sequence.num_pending) == (5, 5, 0, 5)
    assert (sequence.slot, sequence.is_prefilled, sequence.is_over, sequence.tenant) == (None, False, False, "t")


def test_appended_tokens_count_as_generated_and_pending() -> None:
    sequence = make_sequence(make_request("hello"))
    sequence.num_computed = 5
    sequence.append(33)
    assert sequence.ids.tolist() == [*b"hello", 33]
    assert (sequence.num_prompt, sequence.num_generated, sequence.num_pending) == (5, 1, 1)


def test_a_sequence_grows_without_end() -> None:
    sequence = make_sequence(make_request([7]))
    for token_id in range(1000):
        sequence.append(token_id)
    assert sequence.ids.tolist() == [7, *range(1000)]
    assert sequence.ids.dtype == np.int32


def test_a_sequence_is_spent_when_its_last_token_is_chosen_but_not_read() -> None:
    sequence = make_sequence(make_request("hello", max_tokens=2))
    picks = DeferredPicks([7, 8])
    found = []
    for place in range(2):
        sequence.append_unread(Unread(picks, place))
        found.append(sequence.is_spent)
        sequence.settle(7)
        found.append(sequence.is_spent)
    assert found == [False, False, True, False]
    assert sequence.num_tokens == sequence.max_length


@pytest.mark.parametrize(
    ("started_at", "prefilled_at", "expected"),
    [(None, None, (9, 0, 0)), (2.0, None, (2, 7, 0)), (2.0, 5.0, (2, 3, 4))],
)
def test_timings_add_up_to_the_time_since_it_arrived(
    started_at: float | None, prefilled_at: float | None, expected: tuple[int, int, int]
) -> None:
    sequence = make_sequence(make_request())
    sequence.started_at, sequence.prefilled_at = started_at, prefilled_at
    timings = sequence.timings(9.0)
    assert (timings.queued_ms, timings.prompt_ms, timings.predicted_ms) == tuple(1000 * s for s in expected)


def test_the_last_token_is_never_reused_because_its_logits_are_needed() -> None:
    sequence = make_sequence(make_request("hello"))
    assert sequence.reusable_ids.tolist() == list(b"hell")
    sequence.append(33)
    assert sequence.reusable_ids.tolist() == list(b"hello")


@pytest.mark.parametrize(("num_known", "reusable"), [(1, ""), (3, "he"), (4, "hel")])
def test_an_echoed_prompt_reuses_only_positions_whose_log_probabilities_are_known(
    num_known: int, reusable: str
) -> None:
    sequence = make_sequence(make_request("hello", num_prompt_logprobs=0))
    sequence.prompt_logprobs += [Logprob(0, -1.0)] * (num_known - 1)
    assert sequence.wants_prompt_logprobs
    assert sequence.reusable_ids.tolist() == list(reusable.encode())


def test_an_echo_is_complete_with_one_entry_per_token() -> None:
    sequence = make_sequence(make_request("hello", num_prompt_logprobs=0))
    assert sequence.prompt_logprobs == [None]
    sequence.prompt_logprobs += [Logprob(0, -1.0)] * 4
    assert not sequence.wants_prompt_logprobs
    assert sequence.reusable_ids.tolist() == list(b"hell")


def test_a_prompt_of_one_token_has_nothing_to_predict() -> None:
    assert not make_sequence(make_request("h", num_prompt_logprobs=0)).wants_prompt_logprobs


def test_without_echo_no_prompt_log_probabilities_are_wanted() -> None:
    sequence = make_sequence(make_request("hello"))
    assert not sequence.wants_prompt_logprobs
    assert sequence.prompt_logprobs == []


def test_a_group_is_over_with_its_last_choice() -> None:
    request = make_request(num_choices=2)
    first, second = sequences = [make_sequence(request, choice=choice) for choice in range(2)]
    group = Group(request, sequences)
    first.is_over = True
    assert not group.is_over
    second.is_over = True
    assert group.is_over
