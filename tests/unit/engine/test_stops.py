"""Where memory cannot be cut: which states of a prompt are kept, and that nobody computes what is kept."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from proxy_inference_engine.runners.base import Logits, Row
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.types import Image, ImageSpan
from tests.requests import make_request
from tests.unit.engine.driven import ENDLESS, Driven, alone

SHARED = [97 + place % 26 for place in range(300)]
NUM_SAID = 4


class Watching(FakeRunner):
    """Keeps the rows that it was given."""

    def __init__(self, *, can_splice: bool = False) -> None:
        super().__init__(end_bias=ENDLESS, can_splice=can_splice)
        self.rows: list[Row] = []

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        self.rows += rows
        return super().forward(rows)

    def take_count(self) -> int:
        count, self.num_computed_tokens = self.num_computed_tokens, 0
        return count


def ask(driven: Driven, prompt: list[int], name: str, *, num_choices: int = 1) -> int:
    """How many tokens of the prompt came from the cache; what was said is what is said alone."""
    request = make_request(prompt, id=name, max_tokens=NUM_SAID, num_choices=num_choices)
    heard = driven.run(request)
    assert heard.token_ids == alone(request).token_ids
    return heard.prefilled.num_cached_tokens


@pytest.mark.parametrize("num_tokens", [65, 66, 100, 300])
def test_the_second_identical_request_computes_one_token(num_tokens: int) -> None:
    driven = Driven(runner := Watching())
    for name, expected in (("a", 0), ("b", num_tokens - 1), ("c", num_tokens - 1)):
        assert ask(driven, SHARED[:num_tokens], name) == expected
        # The last token that is said is never computed.
        assert runner.take_count() == num_tokens - expected + NUM_SAID - 1


def test_where_two_prompts_part_the_third_goes_on() -> None:
    """System prompts, and histories that are written anew: nobody said where they end."""
    driven = Driven(Watching())
    cached = [ask(driven, [*SHARED, *[65 + place] * 40], f"r{place}") for place in range(4)]
    assert cached[0] == 0 and cached[2:] == [300, 300]


@pytest.mark.parametrize("num_tokens", [2, 40, 64])
def test_short_prompts_are_computed_in_one_pass(num_tokens: int) -> None:
    driven = Driven(runner := Watching())
    ask(driven, SHARED[:num_tokens], "r")
    assert len(runner.rows) == NUM_SAID


def test_nothing_stops_where_memory_can_be_cut_or_nothing_is_kept() -> None:
    for driven in (Driven(Watching(can_splice=True)), Driven(Watching(), max_cache_bytes=0)):
        driven.add(make_request(SHARED))
        driven.step()
        assert driven.engine.scheduler.running[0].stops == ()


def test_choices_and_equal_requests_wait_for_one_computation() -> None:
    driven = Driven(runner := Watching())
    requests = [make_request(SHARED, id=f"r{number}", max_tokens=NUM_SAID, num_choices=2) for number in range(3)]
    driven.run(*requests)
    assert runner.take_count() == len(SHARED) - 1 + 6 * NUM_SAID


def test_who_waits_goes_on_alone_when_the_other_is_gone() -> None:
    driven = Driven(Watching())
    requests = [make_request(SHARED, id=name, max_tokens=NUM_SAID) for name in "ab"]
    driven.add(*requests)
    driven.step()
    assert len(driven.engine.scheduler.waiting) == 1
    driven.engine.cancel("a")
    driven.run()
    assert driven.heard["b", 0].token_ids == alone(requests[1]).token_ids


def test_no_state_is_kept_inside_an_image() -> None:
    """A prompt that ends with one, and prompts that part in one."""
    images = [Image(bytes([number]) * 32, np.zeros((1, 1, 3), np.uint8)) for number in range(2)]
    driven = Driven(runner := Watching())
    for number, image in enumerate([*images, images[0]]):
        request = make_request([*SHARED[:150], *[66] * 100], id=f"r{number}", max_tokens=NUM_SAID)
        driven.run(replace(request, images=(ImageSpan(150, 100, image),)))
    assert [driven.heard[f"r{number}", 0].prefilled.num_cached_tokens for number in (1, 2)] == [150, 150]
    assert all(row.start in (0, 64, 128, 150) or row.start >= 250 for row in runner.rows)
