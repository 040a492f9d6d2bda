"""The derived facts of a sequence, and what of it may come from the cache."""

import numpy as np
import pytest

from proxy_inference_engine.engine.sequence import Group
from proxy_inference_engine.types import Logprob
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


def test_only_the_first_start_counts() -> None:
    sequence = make_sequence(make_request())
    sequence.start(3.0)
    sequence.start(4.0)
    assert sequence.started_at == 3.0


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
