"""Grammars in the engine: what they force is computed with the next token, and nobody can tell from the answer."""

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from proxy_inference_engine.engine.sequence import MAX_JUMP
from proxy_inference_engine.formats import by_name
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import TURN_END, ByteTokenizer, FakeRunner
from proxy_inference_engine.state_machine.demand import Demand, JsonSchema, ListedText
from proxy_inference_engine.state_machine.machine import MachineBuilder
from proxy_inference_engine.types import Limits, Request
from tests.unit.engine.constrained import DEMANDS, FORCED, PROMPT, RECORD, brief, constrained, text_of
from tests.unit.engine.driven import ABRUPT, ENDLESS, Driven, alone, logits_of
from tests.unit.state_machine.vocabularies import PieceTokenizer

every_demand = pytest.mark.parametrize("demand", DEMANDS.values(), ids=DEMANDS.keys())


# The answer does not depend on the way it was computed


@every_demand
@pytest.mark.parametrize("seed", range(4))
def test_log_probabilities_change_no_token(demand: Demand, seed: int) -> None:
    request = constrained(demand, seed=seed)
    for end_bias in (ENDLESS, 0.0):
        plain = alone(request, end_bias=end_bias)
        scored = alone(replace(request, num_top_logprobs=2), end_bias=end_bias)
        assert brief(scored) == brief(plain)
        assert all(token.logprob is None for token in plain.tokens)
        assert [token.logprob.token_id for token in scored.tokens if token.logprob] == plain.token_ids


@every_demand
def test_forced_tokens_are_scored_by_the_models_own_logits(demand: Demand) -> None:
    heard = alone(constrained(demand, num_top_logprobs=0, max_tokens=40))
    rows = logits_of([*PROMPT, *heard.token_ids])[len(PROMPT) - 1 :]
    for token, row in zip(heard.tokens, rows, strict=False):
        assert token.logprob is not None
        shifted = row.astype(np.float64) - row.max()
        assert token.logprob.logprob == pytest.approx(shifted[token.id] - np.log(np.exp(shifted).sum()), abs=1e-4)


def test_a_batch_changes_no_token() -> None:
    requests = [
        constrained(demand, id=f"{name}{seed}", seed=seed, num_top_logprobs=0 if seed % 3 == 0 else None)
        for name, demand in DEMANDS.items()
        for seed in range(5)
    ]
    random.Random(1).shuffle(requests)
    driven = Driven(FakeRunner(lanes=[Lane(7, 256), Lane(1, 512)], end_bias=ENDLESS))
    driven.run(*requests)
    for request in requests:
        assert brief(driven.heard[request.id, 0]) == brief(alone(request)), request.id


@every_demand
def test_the_cache_changes_no_token(demand: Demand) -> None:
    driven = Driven()
    prompt = PROMPT * 8
    first = driven.run(constrained(demand, prompt_ids=prompt))
    again = driven.run(constrained(demand, id="b", prompt_ids=prompt))
    assert brief(again) == brief(first) == brief(alone(constrained(demand, prompt_ids=prompt)))
    assert again.prefilled.num_cached_tokens >= len(prompt) - 1


@every_demand
def test_preemption_changes_no_token(demand: Demand) -> None:
    """Two of one tenant run; another tenant's request takes the youngest's slot in the middle of its answer."""
    driven = Driven(FakeRunner(lanes=[Lane(2, 512)], end_bias=ENDLESS), max_cache_bytes=0)
    requests = [constrained(demand, id=name, seed=seed) for seed, name in enumerate(("a", "b"))]
    driven.add(*requests)
    driven.step(2)
    is_full = len(driven.engine.scheduler.running) == 2
    other = constrained(DEMANDS["record"], id="c", tenant="u")
    driven.run(other)
    assert driven.engine.scheduler.counters.num_preemptions == int(is_full)
    for request in [*requests, other]:
        assert brief(driven.heard[request.id, 0]) == brief(alone(request))


def test_choices_walk_the_grammar_apart() -> None:
    request = constrained(DEMANDS["record"], num_choices=6)
    driven = Driven()
    driven.run(request)
    texts = [text_of(driven.heard["a", choice]) for choice in range(6)]
    assert len(set(texts)) > 3
    assert all(set(json.loads(text)) == {"title", "is_new", "size"} for text in texts)


def test_a_model_that_wants_to_end_cannot_end_early() -> None:
    for name in ("record", "choice", "call"):
        heard = alone(constrained(DEMANDS[name], temperature=0.0), end_bias=ABRUPT)
        assert heard.finished.reason == "stop" and len(heard.tokens) > 3


# Jumps


def test_a_forced_run_takes_one_pass() -> None:
    passes: list[int] = []
    runner = FakeRunner(end_bias=ENDLESS, on_forward=lambda rows: passes.append(len(rows[0].ids)))
    heard = Driven(runner, max_cache_bytes=0).run(constrained(Demand(output=ListedText((FORCED + "a", FORCED + "b")))))
    assert text_of(heard)[: len(FORCED)] == FORCED and len(heard.tokens) == len(FORCED) + 1
    assert passes == [len(PROMPT) + len(FORCED)], "the forced beginning is computed with the prompt"


def test_what_follows_a_choice_is_computed_with_it() -> None:
    passes: list[int] = []
    runner = FakeRunner(end_bias=ENDLESS, on_forward=lambda rows: passes.append(len(rows[0].ids)))
    choices = tuple(f"{letter}{FORCED}{end}" for letter in "ab" for end in "xy")
    heard = Driven(runner, max_cache_bytes=0).run(constrained(Demand(output=ListedText(choices))))
    assert text_of(heard) in choices
    assert passes == [len(PROMPT), 1 + len(FORCED)]


def test_a_jump_that_is_longer_than_one_is_computed_in_chunks() -> None:
    long = "x" * (5 * MAX_JUMP)
    passes: list[int] = []
    runner = FakeRunner(end_bias=ENDLESS, on_forward=lambda rows: passes.append(sum(len(row.ids) for row in rows)))
    request = constrained(Demand(output=ListedText(tuple(f"{letter}{long}{end}" for letter in "ab" for end in "xy"))))
    heard = Driven(runner, max_cache_bytes=0).run(request)
    assert len(heard.tokens) == len(long) + 2
    assert max(passes) <= runner.max_batch_tokens
    assert heard.token_ids == alone(request).token_ids


@pytest.mark.parametrize("num_forced", [MAX_JUMP - 2, MAX_JUMP - 1, MAX_JUMP, MAX_JUMP + 1, 3 * MAX_JUMP])
def test_many_jumping_rows_stay_within_a_batch(num_forced: int) -> None:
    passes: list[int] = []
    lanes = [Lane(40, 256)]
    runner = FakeRunner(lanes=lanes, end_bias=ENDLESS, on_forward=lambda rows: passes.append(_num_ids(rows)))
    runner.max_batch_tokens = 96
    driven = Driven(runner)
    output = ListedText(tuple(f"{letter}{'x' * num_forced}{end}" for letter in "ab" for end in "xy"))
    requests = [constrained(Demand(output=output), id=f"r{seed}", seed=seed) for seed in range(40)]
    echo = constrained(Demand(), id="e", num_prompt_logprobs=0, prompt_ids=PROMPT * 5, max_tokens=1)
    driven.run(*requests, echo)
    assert max(passes) <= runner.max_batch_tokens
    for request in requests:
        assert brief(driven.heard[request.id, 0]) == brief(alone(request))


def _num_ids(rows: Any) -> int:
    return sum(len(row.ids) for row in rows)


@pytest.mark.parametrize("num_steps", [1, 2, 3])
def test_echoed_prompts_beside_jumps_stay_within_a_batch(num_steps: int) -> None:
    """Prompts whose every token is scored go in chunks of one size; jumps must leave them that room."""
    runner = FakeRunner(lanes=[Lane(16, 512)], end_bias=ENDLESS)
    runner.max_batch_tokens = 128
    driven = Driven(runner)
    forced = "x" * (MAX_JUMP - 1)
    output = ListedText(tuple(f"{letter}{forced}{end}" for letter in "ab" for end in "xy"))
    requests = [constrained(Demand(output=output), id=f"r{seed}", seed=seed) for seed in range(12)]
    driven.add(*requests)
    driven.step(num_steps)
    echo = constrained(Demand(), id="e", num_prompt_logprobs=0, prompt_ids=PROMPT * 20, max_tokens=1)
    driven.run(echo)
    for request in [*requests, echo]:
        assert brief(driven.heard[request.id, 0]) == brief(alone(request)), "the runner refused a batch"


def test_a_jump_over_the_end_of_a_slot_moves_the_sequence() -> None:
    driven = Driven(FakeRunner(lanes=[Lane(2, 32), Lane(1, 256)], end_bias=ENDLESS))
    output = ListedText(tuple(f"{letter}{'x' * 60}{end}" for letter in "ab" for end in "xy"))
    request = constrained(Demand(output=output), max_tokens=200)
    assert brief(driven.run(request)) == brief(alone(request))


# Limits


@pytest.mark.parametrize("name", DEMANDS)
def test_every_limit_is_exact(name: str) -> None:
    """Through forced runs too: as many tokens as allowed, the same ones, and `length` unless all of it fitted."""
    request = constrained(DEMANDS[name], temperature=0.7)
    whole = alone(replace(request, limits=Limits(120)))
    for max_tokens in range(min(len(whole.tokens) + 2, 120)):
        for num_top in (None, 0):
            heard = alone(replace(request, limits=Limits(max_tokens), num_top_logprobs=num_top))
            assert heard.token_ids == whole.token_ids[:max_tokens]
            is_whole = max_tokens >= len(whole.tokens) and whole.finished.reason == "stop"
            assert heard.finished.reason == ("stop" if is_whole else "length"), max_tokens


@pytest.mark.parametrize("num_top", [None, 0])
def test_forced_tokens_that_fill_the_context(num_top: int | None) -> None:
    """The last token needs no KV: a request may ask for one token more than a slot holds."""
    forced = "x" * 100
    max_tokens = 40
    driven = Driven(FakeRunner(lanes=[Lane(1, len(PROMPT) + max_tokens - 1)], end_bias=ENDLESS))
    heard = driven.run(
        constrained(Demand(output=ListedText((forced,))), max_tokens=max_tokens, num_top_logprobs=num_top)
    )
    assert text_of(heard) == forced[:max_tokens] and heard.finished.reason == "length"


def test_a_grammar_of_one_text_needs_no_choice() -> None:
    heard = alone(constrained(Demand(output=ListedText((FORCED,)))))
    assert text_of(heard) == FORCED and heard.finished.reason == "stop"
    assert all(token.is_visible for token in heard.tokens)


def test_a_grammar_of_nothing_ends_at_once() -> None:
    heard = alone(constrained(Demand(output=ListedText(("",)))))
    assert text_of(heard) == "" and heard.finished.reason == "stop"


def test_the_forced_beginning_comes_after_the_prompt_was_read() -> None:
    heard = alone(constrained(Demand(output=ListedText((FORCED + "a", FORCED + "b")))))
    assert type(heard.outputs[0]).__name__ == "Prefilled"
    assert [type(output).__name__ for output in heard.outputs].count("Token") == len(FORCED) + 1


def test_usage_counts_what_was_forced() -> None:
    driven = Driven()
    heard = driven.run(constrained(DEMANDS["record"]))
    assert driven.engine.stats.total_generated_tokens == len(heard.tokens)
    assert driven.engine.stats.total_prompt_tokens == len(PROMPT)


def test_min_tokens_keeps_a_grammar_from_ending_where_it_could_go_on() -> None:
    demand = Demand(output=JsonSchema({"type": "integer", "minimum": 0}))
    heard = alone(constrained(demand, limits=Limits(60, min_tokens=12)), end_bias=ABRUPT)
    assert len(text_of(heard)) >= 12 and heard.finished.reason == "stop"


@pytest.mark.parametrize("limits", [Limits(60, min_tokens=50), Limits(60, ignore_eos=True)])
def test_a_complete_grammar_ends_whatever_the_limits_say(limits: Limits) -> None:
    heard = alone(constrained(Demand(output=ListedText(("ab", "cd"))), limits=limits), end_bias=ABRUPT)
    assert text_of(heard) in ("ab", "cd") and heard.finished.reason == "stop"
    assert TURN_END not in heard.token_ids


def test_ignoring_end_tokens_goes_on_where_the_grammar_can() -> None:
    demand = Demand(output=JsonSchema({"type": "string"}))
    heard = alone(constrained(demand, limits=Limits(60, ignore_eos=True)), end_bias=ABRUPT)
    assert TURN_END not in heard.token_ids
    assert heard.finished.reason in ("stop", "length")


def test_an_empty_text_under_a_ban_of_end_tokens_ends_without_showing_one() -> None:
    """Only an end token is left: it ends the answer, and is no part of it."""
    heard = alone(constrained(Demand(output=ListedText(("",))), limits=Limits(9, ignore_eos=True)))
    assert text_of(heard) == "" and heard.finished.reason == "stop"


@pytest.mark.parametrize("num_top", [None, 0])
@pytest.mark.parametrize("place", [0, 3, len(FORCED)])
def test_a_stop_token_ends_the_answer_in_a_forced_run_too(place: int, num_top: int | None) -> None:
    text = "q" * place + "!" + "q" * (len(FORCED) - place)
    for output in (
        ListedText((text + "a", text + "b")),
        ListedText(tuple(f"{a}{text}{b}" for a in "kl" for b in "mn")),
    ):
        limits = Limits(60, stop_token_ids=frozenset({ord("!")}))
        heard = alone(constrained(Demand(output=output), limits=limits, num_top_logprobs=num_top))
        assert heard.finished.reason == "stop"
        assert heard.token_ids[-1] == ord("!") and heard.token_ids.count(ord("!")) == 1


# Reasoning


@pytest.mark.parametrize("num_top", [None, 0])
@pytest.mark.parametrize("most", [0, 1, 5, 12])
def test_a_thinking_budget_closes_at_its_token(most: int, num_top: int | None) -> None:
    demand = Demand(output=JsonSchema(RECORD), is_reasoning_open=True, max_reasoning_tokens=most)
    text = text_of(alone(constrained(demand, temperature=0.0, num_top_logprobs=num_top)))
    assert text[most:].startswith('</think>\n\n{"title":')
    assert "</think>" not in text[:most]


def test_a_least_of_thinking_is_kept() -> None:
    tokenizer = ByteTokenizer()
    demand = Demand(is_reasoning_open=True, min_reasoning_tokens=10, max_reasoning_tokens=10)
    heard = alone(constrained(demand, limits=Limits(30)), end_bias=ABRUPT)
    assert TURN_END not in heard.token_ids[:10]
    assert b"".join(map(tokenizer.token_bytes, heard.token_ids[10:18])) == b"</think>"


def _pieces_request(demand: Demand, **rest: Any) -> tuple[FakeRunner, Request]:
    """A vocabulary with two longer tokens, one of them the gap after the reasoning."""
    runner = FakeRunner(lanes=[Lane(1, 512)], end_bias=ENDLESS)
    tokenizer = PieceTokenizer(pieces=["\n\n", "is"])
    assert tokenizer.num_tokens == 260
    runner.tokenizer = tokenizer  # type: ignore[assignment]
    machine = MachineBuilder(by_name("qwen3"), tokenizer, tracks_states=True).build(demand)
    return runner, replace(constrained(DEMANDS["choice"], **rest), constraint=machine.constraint)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("most", [None, 0, 4])
def test_longer_tokens_are_forced_whole_with_and_without_log_probabilities(most: int | None, seed: int) -> None:
    """What follows a closed budget is forced as the tokenizer would write it, not byte by byte."""
    demand = Demand(output=JsonSchema(RECORD), is_reasoning_open=most is not None, max_reasoning_tokens=most)
    demand = replace(demand, can_reason=demand.is_reasoning_open)
    answers = []
    for num_top in (None, 0):
        runner, request = _pieces_request(demand, seed=seed, num_top_logprobs=num_top)
        answers.append(brief(Driven(runner, max_cache_bytes=0).run(request)))
    assert answers[0] == answers[1]
    assert 259 in answers[0][0], "a part of a key is one token"
    if most is not None:
        assert 258 in answers[0][0], "the gap is one token"


def test_the_cached_tokens_of_a_prompt_are_never_more_than_its_own() -> None:
    """What is forced at the start is in the cache after the first answer too, but it is no part of the prompt."""
    driven = Driven()
    demand = Demand(output=ListedText((FORCED + "a", FORCED + "b")))
    driven.run(constrained(demand, prompt_ids=PROMPT * 4))
    again = driven.run(constrained(demand, id="b", prompt_ids=PROMPT * 4))
    assert again.prefilled.num_cached_tokens <= 4 * len(PROMPT)
    assert driven.engine.stats.total_prompt_tokens_cached <= driven.engine.stats.total_prompt_tokens
