"""Guessing ahead: nobody can tell from the answer, only from the number of passes it took."""

import random
from collections.abc import Sequence as SequenceOf
from dataclasses import replace

import pytest

from proxy_inference_engine.output.events import Ended
from proxy_inference_engine.output.pipeline import Pipeline
from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.fake import TURN_END, ByteTokenizer, FakeRunner
from proxy_inference_engine.state_machine.demand import Demand, ListedText
from proxy_inference_engine.types import Drafted, Limits, Logprob, Request, Sampling, Token
from tests.unit.engine.constrained import DEMANDS, FORCED, constrained
from tests.unit.engine.driven import ENDLESS, Driven, Faults, Heard, alone

PROMPT = tuple(b"tell me more ")


def asked(*, id: str = "a", max_tokens: int = 80, temperature: float = 0.7, seed: int = 1, **rest: object) -> Request:
    request = Request(id, "t", PROMPT, Sampling(seed=seed, temperature=temperature), Limits(max_tokens))
    return replace(request, **rest)  # type: ignore[arg-type]


def heard_of(heard: Heard) -> tuple[list[Token], str]:
    return heard.tokens, heard.finished.reason


class Passes:
    """An `on_forward` that notes the widest rows of tokens and of logits."""

    def __init__(self) -> None:
        self.num_ids: list[int] = []
        self.num_logits: list[int] = []

    def __call__(self, rows: SequenceOf[Row]) -> None:
        self.num_ids.append(sum(len(row.ids) for row in rows))
        self.num_logits.append(sum(row.num_logits for row in rows))


# The answer does not depend on it


def drafts_of(answer: SequenceOf[int], seed: int) -> dict[str, tuple[int, ...]]:
    """Right ones, wrong ones, and some that are partly right."""
    rng = random.Random(seed)
    half = len(answer) // 2
    noise = [rng.randrange(97, 123) for _ in range(40)]
    return {
        "right": tuple(answer),
        "longer": (*answer, *noise),
        "wrong": tuple(noise),
        "changed": (*answer[:half], noise[0], *answer[half + 1 :]),
        "shortened": (*answer[:half], *answer[half + 3 :]),
        "late": (*noise[:5], *answer),
        "repeated": tuple(answer[:half]) * 2 + tuple(answer),
    }


@pytest.mark.parametrize("num_top", [None, 2])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_draft_changes_a_token_or_a_score(temperature: float, num_top: int | None) -> None:
    for seed in range(3):
        request = asked(temperature=temperature, seed=seed, num_top_logprobs=num_top)
        plain = alone(request, end_bias=-1.0)
        for name, draft_ids in drafts_of(plain.token_ids, seed).items():
            drafted = alone(replace(request, draft_ids=draft_ids), end_bias=-1.0)
            assert heard_of(drafted) == heard_of(plain), name


@pytest.mark.parametrize("num_top", [None, 0])
@pytest.mark.parametrize("name", DEMANDS)
def test_no_draft_changes_what_a_grammar_gives(name: str, num_top: int | None) -> None:
    for seed in range(2):
        request = constrained(DEMANDS[name], seed=seed, num_top_logprobs=num_top, max_tokens=90)
        plain = alone(request)
        for kind, draft_ids in drafts_of(plain.token_ids, seed).items():
            assert heard_of(alone(replace(request, draft_ids=draft_ids))) == heard_of(plain), kind


def test_penalties_see_only_what_was_chosen() -> None:
    sampling = Sampling(
        seed=3, temperature=0.8, frequency_penalty=0.9, presence_penalty=0.5, repetition_penalty=1.3, dry_multiplier=0.8
    )
    plain = alone(asked(sampling=sampling))
    for name, draft_ids in drafts_of(plain.token_ids, 1).items():
        assert heard_of(alone(asked(sampling=sampling, draft_ids=draft_ids))) == heard_of(plain), name


def test_every_choice_checks_the_draft_for_itself() -> None:
    request = asked(num_choices=4, temperature=1.0)
    plain, drafted = Driven(), Driven()
    plain.run(request)
    drafted.run(replace(request, draft_ids=tuple(plain.heard["a", 2].token_ids)))
    for choice in range(4):
        assert heard_of(drafted.heard["a", choice]) == heard_of(plain.heard["a", choice])
    accepted = [drafted.heard["a", choice].finished.num_accepted for choice in range(4)]
    assert accepted[2] > 60 and max(accepted[:2] + accepted[3:]) < 30


def test_every_limit_is_exact() -> None:
    whole = alone(asked(max_tokens=60))
    for max_tokens in range(60):
        heard = alone(asked(max_tokens=max_tokens, draft_ids=tuple(whole.token_ids)))
        assert heard.token_ids == whole.token_ids[:max_tokens] and heard.finished.reason == "length"


@pytest.mark.parametrize("place", [1, 2, 7, 20])
def test_a_stop_token_inside_a_draft_ends_the_answer(place: int) -> None:
    answer = alone(asked()).token_ids
    limits = Limits(80, stop_token_ids=frozenset({answer[place]}))
    heard = alone(asked(limits=limits, draft_ids=tuple(answer)))
    assert heard_of(heard) == heard_of(alone(asked(limits=limits)))
    assert heard.finished.reason == "stop" and not heard.tokens[-1].is_visible
    assert heard.finished.num_accepted < len(heard.tokens)


@pytest.mark.parametrize("limits", [Limits(60, min_tokens=30), Limits(60, ignore_eos=True)])
def test_an_end_that_is_not_allowed_yet_is_a_wrong_guess(limits: Limits) -> None:
    plain = alone(asked(limits=limits), end_bias=3.0)
    draft_ids = (*plain.token_ids[:10], TURN_END)
    heard = alone(asked(limits=limits, draft_ids=draft_ids), end_bias=3.0)
    assert heard_of(heard) == heard_of(plain)
    assert heard.finished.num_rejected >= 1


def test_the_scores_of_an_echoed_prompt_stay_the_same() -> None:
    request = asked(num_prompt_logprobs=1, num_top_logprobs=1)
    plain = alone(request)
    drafted = alone(replace(request, draft_ids=tuple(plain.token_ids)))
    assert [each for each in drafted.outputs if not isinstance(each, Drafted)][:-1] == plain.outputs[:-1]
    assert drafted.prefilled.prompt_logprobs is not None and isinstance(drafted.tokens[0].logprob, Logprob)


# What it saves


def test_a_right_draft_takes_few_passes() -> None:
    answer = alone(asked()).token_ids
    passes = Passes()
    heard = Driven(FakeRunner(end_bias=ENDLESS, on_forward=passes)).run(asked(draft_ids=tuple(answer)))
    # The prompt gives the first token; then 1 + 8, 1 + 16, 1 + 32, and what is left.
    assert passes.num_ids == [len(PROMPT), 9, 17, 33, 20]
    assert heard.token_ids == answer
    assert (heard.finished.num_accepted, heard.finished.num_rejected) == (75, 0)


def test_a_changed_word_costs_a_few_passes_only() -> None:
    answer = alone(asked()).token_ids
    passes = Passes()
    draft_ids = (*answer[:30], 1, 1, *answer[33:])
    heard = Driven(FakeRunner(end_bias=ENDLESS, on_forward=passes)).run(asked(draft_ids=draft_ids))
    assert heard.token_ids == answer and len(passes.num_ids) < 16


def test_a_wrong_draft_costs_no_pass() -> None:
    passes, plain = Passes(), Passes()
    Driven(FakeRunner(end_bias=ENDLESS, on_forward=plain)).run(asked())
    heard = Driven(FakeRunner(end_bias=ENDLESS, on_forward=passes)).run(asked(draft_ids=(1, 2, 3) * 20))
    assert len(passes.num_ids) == len(plain.num_ids)
    assert (heard.finished.num_accepted, heard.finished.num_rejected) == (0, 0)


def test_forced_tokens_and_drafts_are_computed_together() -> None:
    choices = tuple(f"{a}{FORCED}{b}{FORCED}{c}" for a in "ab" for b in "cd" for c in "ef")
    request = constrained(Demand(output=ListedText(choices)))
    answer = alone(request)
    passes = Passes()
    runner = FakeRunner(end_bias=ENDLESS, on_forward=passes)
    drafted = Driven(runner).run(replace(request, draft_ids=tuple(answer.token_ids)))
    assert heard_of(drafted) == heard_of(answer)
    assert len(passes.num_ids) <= 3 and passes.num_logits[1] > 1


def test_the_counts_reach_the_end_event() -> None:
    answer = alone(asked()).token_ids
    heard = alone(asked(draft_ids=(*answer[:40], *b"#" * 40)))
    pipeline = Pipeline(ByteTokenizer())
    ended = [event for output in heard.outputs for event in pipeline.feed(output)][-1]
    assert isinstance(ended, Ended)
    assert ended.num_accepted == heard.finished.num_accepted > 20
    assert ended.num_rejected == heard.finished.num_rejected > 0


# Limits of the machine


def test_memory_that_cannot_forget_gets_no_guesses() -> None:
    passes = Passes()
    answer = alone(asked()).token_ids
    runner = FakeRunner(end_bias=ENDLESS, on_forward=passes, can_splice=False)
    heard = Driven(runner).run(asked(draft_ids=tuple(answer)))
    assert heard.token_ids == answer and set(passes.num_logits) == {1}
    assert (heard.finished.num_accepted, heard.finished.num_rejected) == (0, 0)


@pytest.mark.parametrize(("max_batch_tokens", "max_logits"), [(96, 64), (512, 45), (512, 40), (60, 200), (512, 200)])
def test_many_drafts_stay_within_a_pass(max_batch_tokens: int, max_logits: int) -> None:
    passes = Passes()
    runner = FakeRunner(lanes=[Lane(40, 256)], end_bias=ENDLESS, on_forward=passes)
    runner.max_batch_tokens, runner.max_logits = max_batch_tokens, max_logits
    requests = [asked(id=f"r{seed}", seed=seed, max_tokens=40) for seed in range(40)]
    answers = [alone(request) for request in requests]
    driven = Driven(runner)
    driven.run(
        *(
            replace(request, draft_ids=tuple(answer.token_ids))
            for request, answer in zip(requests, answers, strict=True)
        )
    )
    assert max(passes.num_ids) <= max_batch_tokens and max(passes.num_logits) <= max_logits
    for request, answer in zip(requests, answers, strict=True):
        assert heard_of(driven.heard[request.id, 0]) == heard_of(answer)
    assert driven.engine.stats.total_draft_tokens_accepted > 0 or max_logits == 40


def test_an_echoed_prompt_beside_drafts_stays_within_a_pass() -> None:
    passes = Passes()
    runner = FakeRunner(lanes=[Lane(8, 512)], end_bias=ENDLESS, on_forward=passes)
    answer = alone(asked(max_tokens=200)).token_ids
    driven = Driven(runner)
    driven.add(*(asked(id=f"r{n}", max_tokens=200, draft_ids=tuple(answer)) for n in range(6)))
    driven.step(3)
    driven.run(asked(id="e", prompt_ids=PROMPT * 20, num_prompt_logprobs=0))
    assert max(passes.num_logits) <= runner.max_logits
    assert all(driven.heard[f"r{n}", 0].token_ids == answer for n in range(6))


def test_a_draft_never_overflows_its_slot() -> None:
    """It is cut where the slot ends; the sequence then moves on to a longer one."""
    answer = alone(asked()).token_ids
    driven = Driven(FakeRunner(lanes=[Lane(2, len(PROMPT) + 20), Lane(1, 128)], end_bias=ENDLESS))
    assert driven.run(asked(draft_ids=tuple(answer))).token_ids == answer
    full = Driven(FakeRunner(lanes=[Lane(1, len(PROMPT) + 79)], end_bias=ENDLESS))
    assert full.run(asked(draft_ids=tuple(answer))).token_ids == answer


# The life around it


def test_only_what_was_chosen_goes_into_the_cache() -> None:
    """Another request goes on from what the first left: a guess that stayed in there would show in its answer."""
    answer = alone(asked()).token_ids
    wrong = (*answer[:22], *b"##########", *answer[40:])
    for num_steps in (2, 3, 4, 5):
        driven = Driven()
        driven.add(asked(draft_ids=wrong))
        driven.step(num_steps)
        said = driven.heard["a", 0].token_ids
        driven.engine.cancel("a")
        driven.engine.check()
        for tail in ((), tuple(b"##########")):
            after = asked(id=f"b{len(tail)}", prompt_ids=(*PROMPT, *said, *tail, *b"more"))
            heard = driven.run(after)
            assert heard.token_ids == alone(after).token_ids
            assert heard.prefilled.num_cached_tokens <= len(PROMPT) + len(said)


def test_a_running_draft_lends_its_prefix() -> None:
    answer = alone(asked()).token_ids
    driven = Driven()
    driven.add(asked(draft_ids=(*answer[:12], *b"#" * 30)))
    driven.step(3)
    said = driven.heard["a", 0].token_ids
    after = asked(id="b", prompt_ids=(*PROMPT, *said, *b"#" * 12))
    assert driven.run(after).token_ids == alone(after).token_ids
    assert driven.heard["a", 0].token_ids == answer


def test_preemption_changes_no_token() -> None:
    driven = Driven(FakeRunner(lanes=[Lane(2, 512)], end_bias=ENDLESS), max_cache_bytes=0)
    requests = [asked(id=name, seed=seed) for seed, name in enumerate("ab")]
    answers = {request.id: alone(request).token_ids for request in requests}
    driven.add(*(replace(request, draft_ids=tuple(answers[request.id])) for request in requests))
    driven.step(3)
    driven.run(replace(asked(id="c"), tenant="u"))
    assert driven.engine.scheduler.counters.num_preemptions == 1
    for name, token_ids in answers.items():
        assert driven.heard[name, 0].token_ids == token_ids


@pytest.mark.parametrize("fault", [2, 3, 4])
def test_a_pass_that_fails_is_computed_again_with_its_guesses(fault: int) -> None:
    answer = alone(asked()).token_ids
    runner = FakeRunner(end_bias=ENDLESS, on_forward=Faults(fault))
    heard = Driven(runner).run(asked(draft_ids=tuple(answer)))
    assert heard.token_ids == answer
    assert (heard.finished.num_accepted, heard.finished.num_rejected) == (75, 0)


def test_a_memory_that_fails_to_forget_ends_one_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    truncate = FakeRunner.truncate
    faults = Faults(1)

    def broken(self: FakeRunner, slot: int, num_tokens: int) -> None:
        faults()
        truncate(self, slot, num_tokens)

    monkeypatch.setattr(FakeRunner, "truncate", broken)
    drafts = [alone(asked(seed=seed)).token_ids for seed in (1, 2)]
    driven = Driven()
    driven.run(asked(draft_ids=tuple(drafts[0])), asked(id="b", seed=2, draft_ids=tuple(drafts[1])))
    assert driven.heard["a", 0].error.status == 500
    assert driven.heard["b", 0].token_ids == drafts[1]
