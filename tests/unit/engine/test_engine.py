"""One request's life in the engine: what it hears, when it ends, and what the books say."""

import math
from dataclasses import astuple

import numpy as np
import pytest

from proxy_inference_engine.errors import ContextLengthExceeded
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import TEXT_END, TURN_END, FakeRunner
from proxy_inference_engine.types import Finished, Limits, Logprob, Prefilled, Request, Token
from tests.clock import Clock
from tests.requests import make_request, random_draws
from tests.unit.engine.driven import ABRUPT, ENDLESS, Driven, alone, logits_of

END_IDS = {TURN_END, TEXT_END}
LONG = "a long prompt that takes several steps to compute, for a chunk has 64 tokens at most; " * 3


def log_softmax(row: np.ndarray[tuple[int], np.dtype[np.float32]]) -> list[float]:
    total = math.log(sum(math.exp(value) for value in row.tolist()))
    return [value - total for value in row.tolist()]


# Ends


def test_outputs_come_in_order() -> None:
    outputs = Driven().run(make_request(max_tokens=3)).outputs
    assert [type(output) for output in outputs] == [Prefilled, Token, Token, Token, Finished]


def test_the_greedy_answer_is_the_model_s() -> None:
    ids = list(b"hello")
    for token_id in Driven().run(make_request("hello", max_tokens=5)).token_ids:
        assert token_id == int(logits_of(ids)[-1].argmax())
        ids.append(token_id)


def test_max_tokens_is_the_length() -> None:
    heard = Driven().run(make_request(max_tokens=7))
    assert (len(heard.tokens), heard.finished.reason) == (7, "length")


def test_max_tokens_zero_computes_the_prompt_only() -> None:
    driven = Driven()
    heard = driven.run(make_request("hello", max_tokens=0))
    assert [type(output) for output in heard.outputs] == [Prefilled, Finished]
    assert heard.finished.reason == "length"
    assert driven.runner.num_computed_tokens == 5


def test_an_end_token_is_counted_but_not_visible() -> None:
    heard = Driven(FakeRunner(end_bias=ABRUPT)).run(make_request())
    assert heard.tokens == [Token(TURN_END, is_visible=False)]
    assert heard.finished.reason == "stop"


def test_an_end_token_at_the_limit_is_a_stop() -> None:
    heard = Driven(FakeRunner(end_bias=ABRUPT)).run(make_request(max_tokens=1))
    assert heard.finished.reason == "stop"


def test_a_stop_token_ends_the_answer_out_of_sight() -> None:
    plain = Driven().run(make_request(max_tokens=8)).token_ids
    stop = plain[3]
    first = plain.index(stop)
    heard = Driven().run(make_request(limits=Limits(8, stop_token_ids=frozenset({stop}))))
    assert heard.token_ids == plain[: first + 1]
    assert [token.is_visible for token in heard.tokens] == [True] * first + [False]
    assert heard.finished.reason == "stop"


def test_before_min_tokens_no_end_token_is_drawn() -> None:
    heard = Driven(FakeRunner(end_bias=ABRUPT)).run(make_request(limits=Limits(10, min_tokens=5)))
    assert END_IDS.isdisjoint(heard.token_ids[:5])
    assert heard.token_ids[5:] == [TURN_END]


def test_before_min_tokens_no_stop_token_is_drawn() -> None:
    stop = Driven().run(make_request(max_tokens=1)).token_ids[0]
    limits = Limits(6, min_tokens=6, stop_token_ids=frozenset({stop}))
    heard = Driven().run(make_request(limits=limits))
    assert stop not in heard.token_ids
    assert heard.finished.reason == "length"


def test_ignore_eos_draws_no_end_token_at_all() -> None:
    heard = Driven(FakeRunner(end_bias=ABRUPT)).run(make_request(limits=Limits(10, ignore_eos=True)))
    assert END_IDS.isdisjoint(heard.token_ids)
    assert (len(heard.tokens), heard.finished.reason) == (10, "length")


def test_ignore_eos_draws_no_end_token_before_min_tokens_either() -> None:
    limits = Limits(10, min_tokens=5, ignore_eos=True)
    heard = Driven(FakeRunner(end_bias=ABRUPT)).run(make_request(limits=limits))
    assert END_IDS.isdisjoint(heard.token_ids)


def test_ignore_eos_keeps_other_stop_tokens() -> None:
    plain = Driven().run(make_request(max_tokens=8)).token_ids
    limits = Limits(8, stop_token_ids=frozenset({plain[3]}), ignore_eos=True)
    heard = Driven().run(make_request(limits=limits))
    assert heard.token_ids == plain[: plain.index(plain[3]) + 1]
    assert heard.finished.reason == "stop"


# Admission


def test_a_request_that_can_never_fit_is_refused() -> None:
    driven = Driven(FakeRunner(lanes=[Lane(2, 32), Lane(1, 100)]))
    with pytest.raises(ContextLengthExceeded) as info:
        driven.add(make_request("x" * 60, max_tokens=42))
    assert "102" in info.value.message and "100" in info.value.message
    assert (info.value.status, info.value.code) == (400, "context_length_exceeded")
    driven.assert_idle()
    assert "r" not in driven.engine


@pytest.mark.parametrize(("num_prompt", "max_tokens"), [(60, 41), (100, 1), (1, 100), (100, 0)])
def test_a_request_may_use_the_context_to_its_last_token(num_prompt: int, max_tokens: int) -> None:
    driven = Driven(FakeRunner(lanes=[Lane(2, 32), Lane(1, 100)], end_bias=ENDLESS))
    assert driven.engine.context_tokens == 100
    request = make_request("x" * num_prompt, max_tokens=max_tokens)
    heard = driven.run(request)
    assert heard.token_ids == alone(request).token_ids
    assert len(heard.tokens) == max_tokens


def test_a_prompt_that_leaves_no_room_for_a_token_is_refused() -> None:
    with pytest.raises(ContextLengthExceeded):
        Driven(FakeRunner(lanes=[Lane(1, 100)])).add(make_request("x" * 101, max_tokens=0))


def test_an_idle_engine_steps_without_work() -> None:
    engine = Driven().engine
    assert not engine.has_work
    assert engine.step() == []
    assert engine.stats.total_steps == 0


# Log-probabilities


def test_without_being_asked_for_there_are_no_log_probabilities() -> None:
    heard = Driven().run(make_request())
    assert heard.prefilled.prompt_logprobs is None
    assert [token.logprob for token in heard.tokens] == [None] * 8


@pytest.mark.parametrize("num_top", [0, 1, 5])
def test_log_probabilities_are_the_model_s_own(num_top: int) -> None:
    sampling = random_draws(3)
    heard = Driven().run(make_request("hello", sampling=sampling, num_top_logprobs=num_top))
    expected = log_softmax(logits_of([*b"hello", *heard.token_ids])[5 - 1 + 2])
    token = heard.tokens[2]
    assert token.logprob is not None
    assert token.logprob.token_id == token.id
    assert token.logprob.logprob == pytest.approx(expected[token.id], abs=1e-4)
    likeliest = sorted(range(260), key=lambda token_id: -expected[token_id])[:num_top]
    assert [token_id for token_id, _ in token.logprob.top] == likeliest
    assert [value for _, value in token.logprob.top] == pytest.approx([expected[i] for i in likeliest], abs=1e-4)


def echo(prompt: str = LONG, *, id: str = "r") -> Request:
    return make_request(prompt, id=id, max_tokens=2, num_prompt_logprobs=2)


def test_every_prompt_token_but_the_first_has_a_log_probability() -> None:
    logprobs = Driven().run(echo()).prefilled.prompt_logprobs
    assert logprobs is not None
    assert logprobs[0] is None
    ids = list(LONG.encode())
    rows = logits_of(ids)
    for position in (1, 63, 64, 65, len(ids) - 1):
        logprob = logprobs[position]
        assert logprob is not None
        assert (logprob.token_id, len(logprob.top)) == (ids[position], 2)
        assert logprob.logprob == pytest.approx(log_softmax(rows[position - 1])[ids[position]], abs=1e-4)
    assert len(logprobs) == len(ids)


def test_prompt_log_probabilities_are_the_same_with_a_warm_cache() -> None:
    driven = Driven()
    driven.run(make_request(LONG, id="warm"))
    heard = driven.run(echo())
    assert heard.prefilled == Driven(max_cache_bytes=0).run(echo()).prefilled
    assert heard.prefilled.num_cached_tokens == 0, "their logits have to be computed"


def test_a_prompt_of_one_token_can_be_echoed() -> None:
    assert Driven().run(echo("h")).prefilled == Prefilled(0, (None,))


def test_an_echo_changes_nothing_in_the_answer() -> None:
    assert Driven().run(echo()).token_ids == Driven().run(make_request(LONG, max_tokens=2)).token_ids


def test_many_echoed_prompts_at_once_are_each_right() -> None:
    driven = Driven()
    requests = [echo(f"{index} {LONG}", id=f"r{index}") for index in range(8)]
    driven.run(*requests)
    for request in requests:
        assert driven.heard[request.id, 0].prefilled == alone(request).prefilled


def test_as_many_echoed_prompts_as_slots_make_progress() -> None:
    driven = Driven(FakeRunner(lanes=[Lane(64, 100)]))
    driven.run(*[make_request(f"{number} echo", id=f"r{number}", num_prompt_logprobs=0) for number in range(64)])


# Seeds


def draw(seed: int, *, id: str = "r", num_choices: int = 1) -> Request:
    return make_request("once", id=id, max_tokens=12, sampling=random_draws(seed), num_choices=num_choices)


def test_the_same_seed_gives_the_same_tokens_alone_and_in_a_batch() -> None:
    driven = Driven()
    driven.run(*[draw(seed, id=f"r{seed}", num_choices=2) for seed in range(8)])
    for seed in range(8):
        assert driven.heard[f"r{seed}", 0].outputs[1:-1] == alone(draw(seed)).outputs[1:-1]


def test_other_seeds_and_other_choices_give_other_tokens() -> None:
    driven = Driven()
    driven.run(draw(1, id="r1", num_choices=4), draw(2, id="r2", num_choices=4))
    answers = {tuple(heard.token_ids) for heard in driven.heard.values()}
    assert len(answers) == 8


def test_greedy_choices_are_the_same() -> None:
    driven = Driven()
    driven.run(make_request(num_choices=3))
    assert driven.heard["r", 0].token_ids == driven.heard["r", 1].token_ids == driven.heard["r", 2].token_ids


# Books


def test_timings_are_those_of_the_clock() -> None:
    clock = Clock()
    runner = FakeRunner(lanes=[Lane(1, 200)], end_bias=ENDLESS, step_seconds=lambda num_tokens: 0.1, sleep=clock.sleep)
    driven = Driven(runner, clock=clock)
    driven.run(make_request("four", id="first", max_tokens=3), make_request("four", id="second", max_tokens=1))
    first, second = (driven.heard[name, 0].finished.timings for name in ("first", "second"))
    assert astuple(first) == pytest.approx((0.0, 100.0, 200.0))
    assert astuple(second) == pytest.approx((300.0, 100.0, 0.0))


def test_timings_hold_for_a_clock_that_starts_at_zero() -> None:
    clock = Clock()
    clock.now = 0.0
    runner = FakeRunner(end_bias=ENDLESS, step_seconds=lambda num_tokens: 0.1, sleep=clock.sleep)
    timings = Driven(runner, clock=clock).run(make_request(max_tokens=3)).finished.timings
    assert (timings.queued_ms, timings.prompt_ms, timings.predicted_ms) == pytest.approx((0, 100, 200))


def test_totals() -> None:
    driven = Driven()
    driven.run(make_request("hello", id="r1", max_tokens=4))
    driven.run(make_request("hello", id="r2", max_tokens=4))
    stats = driven.engine.stats
    assert (stats.total_prompt_tokens, stats.total_prompt_tokens_cached, stats.total_generated_tokens) == (10, 4, 8)
    assert stats.total_steps == 8
    assert stats.total_failures == 0


def test_a_logprob_of_one_choice_is_not_another_s() -> None:
    driven = Driven()
    driven.run(make_request(num_choices=2, num_top_logprobs=0, sampling=random_draws(5)))
    for choice in (0, 1):
        for token in driven.heard["r", choice].tokens:
            assert isinstance(token.logprob, Logprob) and token.logprob.token_id == token.id
