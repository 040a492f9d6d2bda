"""A second model that guesses: nobody can tell from the answer, only from the number of passes it took."""

import logging
from dataclasses import replace

import pytest

from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import TURN_END, FakeRunner
from proxy_inference_engine.types import Drafted, Limits, Request, Sampling, Token
from tests.clock import Clock
from tests.drafts import DraftRunner
from tests.unit.engine.constrained import DEMANDS, constrained
from tests.unit.engine.driven import ENDLESS, Driven, Faults, Heard, alone

PROMPT = tuple(b"tell me more ")


def asked(*, id: str = "a", max_tokens: int = 80, temperature: float = 0.7, seed: int = 1, **rest: object) -> Request:
    request = Request(id, "t", PROMPT, Sampling(seed=seed, temperature=temperature), Limits(max_tokens))
    return replace(request, **rest)  # type: ignore[arg-type]


def said(heard: Heard) -> tuple[list[Token], str]:
    return heard.tokens, heard.finished.reason


class Paired(Driven):
    """With a draft model, of which nothing may be left when nothing runs."""

    def __init__(
        self,
        draft: DraftRunner | None = None,
        runner: FakeRunner | None = None,
        *,
        max_tokens: int = 8,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(runner, clock=clock)
        self.draft = draft or DraftRunner(end_bias=ENDLESS)
        self.engine.draft_with(self.draft, max_tokens)

    @property
    def counts(self) -> tuple[int, int]:
        return self.engine.stats.total_model_draft_tokens, self.engine.stats.total_model_draft_tokens_accepted

    def assert_idle(self) -> None:
        super().assert_idle()
        assert self.draft.num_held_slots() == 0


# The answer does not depend on it


@pytest.mark.parametrize("wrong_every", [0, 1, 2, 7])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("num_top", [None, 2])
def test_no_draft_changes_a_token_or_a_score(wrong_every: int, temperature: float, num_top: int | None) -> None:
    for seed in range(5):
        request = asked(temperature=temperature, seed=seed, num_top_logprobs=num_top)
        driven = Paired(DraftRunner(wrong_every=wrong_every, end_bias=-1.0), FakeRunner(end_bias=-1.0))
        assert said(driven.run(request)) == said(alone(request, end_bias=-1.0))
        assert driven.counts[0] > 0


@pytest.mark.parametrize("name", DEMANDS)
def test_no_draft_changes_what_a_grammar_gives(name: str) -> None:
    request = constrained(DEMANDS[name], max_tokens=60)
    driven = Paired(DraftRunner(wrong_every=3))
    assert said(driven.run(request)) == said(alone(request))


def test_penalties_see_what_they_would_see_without() -> None:
    sampling = Sampling(seed=3, temperature=0.8, repetition_penalty=1.3, presence_penalty=0.5, dry_multiplier=0.8)
    driven = Paired(DraftRunner(wrong_every=4, end_bias=ENDLESS))
    assert said(driven.run(asked(sampling=sampling))) == said(alone(asked(sampling=sampling)))
    assert 0 < driven.counts[1] < driven.counts[0]


def test_many_choices_are_drafted_together() -> None:
    """One pass of the draft model a token, however many choices there are."""
    num_rows: list[int] = []
    draft = DraftRunner(end_bias=ENDLESS, on_forward=lambda rows: num_rows.append(len(rows)))
    driven, plain = Paired(draft), Driven()
    driven.run(asked(num_choices=4))
    plain.run(asked(num_choices=4))
    for choice in range(4):
        assert said(driven.heard["a", choice]) == said(plain.heard["a", choice])
    assert max(num_rows) == 4 and num_rows.count(4) > len(num_rows) / 2
    assert driven.counts[0] == driven.counts[1] > 200


# It takes fewer passes


@pytest.mark.parametrize(("max_tokens", "num_steps"), [(1, 42), (4, 19), (8, 12), (64, 7)])
def test_a_model_that_agrees_takes_few_passes(max_tokens: int, num_steps: int) -> None:
    """Two plain passes are measured after the prompt's; the length doubles from 8."""
    driven = Paired(max_tokens=max_tokens)
    heard = driven.run(asked())
    assert len(heard.token_ids) == 80 and driven.counts[0] == driven.counts[1]
    assert driven.engine.stats.total_steps == num_steps


def test_the_draft_model_computes_each_token_about_once() -> None:
    driven = Paired()
    driven.run(asked())
    assert driven.draft.num_computed_tokens <= len(PROMPT) + 80


def test_an_end_token_ends_a_guess() -> None:
    """What would come after it was never guessed, so all that was guessed was right."""
    driven = Paired(DraftRunner(), FakeRunner())
    heard = driven.run(asked(max_tokens=900, seed=3))
    assert heard.token_ids[-1] == TURN_END and driven.counts[0] == driven.counts[1] > 0


# It is used only where it pays


def timed(draft_s: float, *, wrong_every: int = 0, token_s: float = 0.001) -> Paired:
    """A pass of the model takes 10 ms and `token_s` a token, one of the draft model `draft_s`."""
    clock = Clock()
    draft = DraftRunner(
        wrong_every=wrong_every, end_bias=ENDLESS, step_seconds=lambda num_tokens: draft_s, sleep=clock.sleep
    )
    runner = FakeRunner(
        end_bias=ENDLESS, step_seconds=lambda num_tokens: 0.01 + token_s * num_tokens, sleep=clock.sleep
    )
    return Paired(draft, runner, clock=clock)


def seconds_of(driven: Driven, *requests: Request) -> float:
    began = driven.clock()
    driven.run(*requests)
    return driven.clock() - began


def plain_seconds(*requests: Request) -> float:
    driven = timed(0.001)
    driven.engine.draft_with(DraftRunner(), 0)
    return seconds_of(driven, *requests)


def test_a_cheap_draft_model_makes_answers_faster() -> None:
    request = asked(max_tokens=400)
    assert seconds_of(timed(0.001), request) < 0.4 * plain_seconds(request)


def test_a_dear_one_is_given_a_rest() -> None:
    """Guessing takes as long as answering, and checking on top of it."""
    driven, request = timed(0.012), asked(max_tokens=400)
    assert seconds_of(driven, request) < 1.1 * plain_seconds(request)
    assert 0 < driven.counts[0] < 200


def test_a_size_of_batch_at_which_it_costs_is_left_alone() -> None:
    """Where each token of a pass costs as much as a pass, only one row has time to spare for being wrong."""
    requests = [asked(id=f"r{number}", max_tokens=300, seed=number) for number in range(8)]
    many = timed(0.002, wrong_every=2, token_s=0.01)
    assert seconds_of(many, *requests) < 1.15 * _plain_many(requests)


def _plain_many(requests: list[Request]) -> float:
    driven = timed(0.002, token_s=0.01)
    driven.engine.draft_with(DraftRunner(), 0)
    return seconds_of(driven, *requests)


def test_a_choice_that_is_guessed_wrong_is_left_alone_for_longer_and_longer() -> None:
    driven = Paired(DraftRunner(wrong_every=1, end_bias=ENDLESS))
    heard = driven.run(asked(max_tokens=400, temperature=0.0))
    assert len(heard.token_ids) == 400 and 0 < driven.counts[0] < 60


def test_nothing_is_guessed_beside_prompts() -> None:
    driven = Paired()
    driven.add(asked(max_tokens=300))
    driven.step(6)
    num_before = driven.counts[0]
    driven.add(asked(id="long", prompt_ids=tuple(b"x" * 900), max_tokens=2))
    driven.step()  # admitted after the guess
    num_joined = driven.counts[0]
    while any(not sequence.is_prefilled for sequence in driven.engine.scheduler.running):
        driven.step()
        assert driven.counts[0] == num_joined
    assert num_joined >= num_before
    driven.run()


# Long texts and small slots


def test_a_long_prompt_is_read_in_pieces() -> None:
    clock, widths = Clock(), []
    draft = DraftRunner(
        lanes=[Lane(2, 4096)],
        end_bias=ENDLESS,
        step_seconds=lambda num_tokens: 0.0002 * num_tokens,
        sleep=clock.sleep,
        on_forward=lambda rows: widths.append(sum(len(row.ids) for row in rows)),
    )
    runner = FakeRunner(
        lanes=[Lane(2, 4096)], end_bias=ENDLESS, step_seconds=lambda num_tokens: 0.01, sleep=clock.sleep
    )
    driven = Paired(draft, runner, clock=clock)
    request = asked(prompt_ids=tuple(b"abcdefghij" * 150), max_tokens=300)
    assert said(driven.run(request)) == said(alone(request))
    assert max(widths) <= 0.025 / 0.0002 + 1, "half of a step's time"
    assert driven.counts[1] > 100


@pytest.mark.parametrize(
    ("lanes", "has_drafts"),
    [([Lane(1, 256)], True), ([Lane(1, 16)], False), ([Lane(1, 40)], True), ([Lane(1, 40), Lane(1, 200)], True)],
)
def test_who_finds_no_slot_goes_without(lanes: list[Lane], has_drafts: bool) -> None:
    driven = Paired(DraftRunner(lanes=lanes, end_bias=ENDLESS))
    requests = [asked(id=f"r{number}", seed=number, max_tokens=120) for number in range(3)]
    driven.run(*requests)
    for request in requests:
        assert said(driven.heard[request.id, 0]) == said(alone(request))
    assert (driven.counts[0] > 0) == has_drafts


def test_guesses_stay_within_a_pass() -> None:
    runner = FakeRunner(end_bias=ENDLESS, lanes=[Lane(8, 256)])
    runner.max_logits = 12
    driven = Paired(None, runner)
    driven.run(*(asked(id=f"r{number}", seed=number) for number in range(8)))
    assert driven.counts[0] > 0


# Slots and failures


def test_cancelled_and_preempted_choices_give_their_slots_back() -> None:
    runner = FakeRunner(end_bias=ENDLESS, lanes=[Lane(2, 256)])
    driven = Paired(DraftRunner(end_bias=ENDLESS, lanes=[Lane(2, 256)]), runner)
    driven.add(asked(max_tokens=200), asked(id="b", seed=2, max_tokens=200))
    driven.step(6)
    assert driven.draft.num_held_slots() == 2
    driven.add(asked(id="c", tenant="other", seed=3))
    driven.step()
    assert driven.engine.scheduler.counters.num_preemptions == 1
    driven.engine.cancel("a")
    driven.engine.check()
    driven.run()
    assert said(driven.heard["b", 0]) == said(alone(asked(id="b", seed=2, max_tokens=200)))
    assert said(driven.heard["c", 0]) == said(alone(asked(id="c", seed=3)))


@pytest.mark.parametrize("call", [1, 2, 5, 11])
def test_a_failure_ends_the_drafts_and_no_request(call: int, caplog: pytest.LogCaptureFixture) -> None:
    driven = Paired(DraftRunner(end_bias=ENDLESS, on_forward=Faults(call)))
    with caplog.at_level(logging.WARNING):
        assert said(driven.run(asked())) == said(alone(asked()))
        assert said(driven.run(asked(id="b"))) == said(alone(asked(id="b")))
    assert [record.message for record in caplog.records] == ["the draft model failed; from now on there are no drafts"]
    assert driven.draft.is_closed and driven.engine.stats.total_failures == 0


@pytest.mark.parametrize("name", ["truncate", "release", "close"])
def test_so_does_one_of_its_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("injected fault")

    driven = Paired(DraftRunner(end_bias=ENDLESS, on_forward=Faults(9) if name == "close" else None))
    monkeypatch.setattr(driven.draft, name, fail)
    driven.add(asked(), asked(id="b", seed=2))
    while driven.engine.has_work:
        driven.step()
    assert said(driven.heard["a", 0]) == said(alone(asked()))
    assert said(driven.heard["b", 0]) == said(alone(asked(id="b", seed=2)))


def test_a_model_that_gives_no_numbers_has_failed() -> None:
    draft = DraftRunner(end_bias=ENDLESS)
    draft._poison_id = ord("t")
    driven = Paired(draft)
    assert said(driven.run(asked())) == said(alone(asked()))
    assert draft.is_closed


def test_a_failed_pass_of_the_model_is_repeated_with_its_guesses() -> None:
    driven = Paired(None, FakeRunner(end_bias=ENDLESS, on_forward=Faults(5)))
    assert said(driven.run(asked())) == said(alone(asked()))
    assert driven.counts[0] == driven.counts[1] > 0


def test_the_engine_closes_it() -> None:
    driven = Paired()
    driven.engine.close()
    assert driven.draft.is_closed


# Whose guess it is


def test_a_client_s_own_draft_goes_first_and_is_counted_apart() -> None:
    answer = alone(asked()).token_ids
    driven = Paired()
    heard = driven.run(asked(draft_ids=tuple(answer)))
    assert driven.counts == (0, 0) and heard.finished.num_accepted > 60
    heard = driven.run(asked(id="b"))
    assert driven.counts[1] > 60 and (heard.finished.num_accepted, heard.finished.num_rejected) == (0, 0)
    assert not any(isinstance(output, Drafted) for output in heard.outputs)


def test_where_nothing_can_be_forgotten_nothing_is_guessed() -> None:
    driven = Paired(None, FakeRunner(end_bias=ENDLESS, can_splice=False))
    assert said(driven.run(asked())) == said(alone(asked()))
    assert driven.counts == (0, 0)
