"""Shortcuts: each is closed by whatever it was not taught, a field that was added later included."""

from dataclasses import fields, replace

import numpy as np
import pytest

from proxy_inference_engine.engine.deferral import Deferral
from proxy_inference_engine.engine.drafts.draft_model import Drafting
from proxy_inference_engine.engine.stats import Stats
from proxy_inference_engine.sampling.sampler import BARE, NUCLEUS, PLAIN, UNFILTERED, Sampler
from proxy_inference_engine.state_machine.demand import Demand, ListedText
from proxy_inference_engine.types import STEP_PARAMETERS, Limits, Request, Sampling, Shortcut
from tests.clock import Clock
from tests.deferred import DeferredChooser
from tests.drafts import DraftRunner
from tests.requests import make_request
from tests.unit.engine.constrained import FORCED, constrained
from tests.unit.engine.driven import Driven, alone, make_sequence
from tests.wider import CHANGES, wider

SAMPLING = Sampling(seed=1, top_p=0.9)
OF_LOGITS = {"logit_bias", "repetition_penalty", "frequency_penalty", "presence_penalty", "dry_multiplier"}
LATE = {"typical_p", "top_n_sigma", "dynatemp_range", "mirostat"}  # what no shortcut was taught


def test_only_what_is_honoured_may_differ() -> None:
    shortcut = Shortcut("seed", "top_p")
    assert shortcut.takes(SAMPLING)
    assert shortcut.takes(replace(SAMPLING, logit_bias={})), "equal to its default"
    assert not shortcut.takes(replace(SAMPLING, logit_bias={1: 1.0}))
    assert not shortcut.takes(replace(SAMPLING, min_p=0.1))


def test_a_field_without_a_default_has_to_be_honoured() -> None:
    assert not Shortcut("top_p").takes(SAMPLING)


def test_a_name_that_is_no_field_is_noticed() -> None:
    with pytest.raises(AssertionError, match="Sampling has no such field"):
        Shortcut("seed", "topp").takes(SAMPLING)


@pytest.mark.parametrize(
    ("shortcut", "closing"),
    [
        (PLAIN, {*OF_LOGITS, *LATE}),
        (NUCLEUS, {"top_k", "min_p", "xtc_probability", *LATE}),
    ],
)
def test_what_closes_the_sampler_s_shortcuts(shortcut: Shortcut, closing: set[str]) -> None:
    assert CHANGES.keys() == {each.name for each in fields(Sampling)}
    closed = {name for name, value in CHANGES.items() if not shortcut.takes(replace(SAMPLING, **{name: value}))}
    assert closed == closing


@pytest.mark.parametrize(("shortcut", "taking"), [(BARE, set()), (UNFILTERED, OF_LOGITS)])
def test_what_a_draw_without_filters_honours(shortcut: Shortcut, taking: set[str]) -> None:
    bare = replace(SAMPLING, top_p=1.0)
    taken = {name for name, value in CHANGES.items() if shortcut.takes(replace(bare, **{name: value}))}
    assert taken == {"seed", "temperature", *STEP_PARAMETERS, *taking}
    assert not shortcut.takes(wider(bare, added=1.0))


# A field that was added later


def test_the_sampler_notices_a_new_field() -> None:
    """It takes the long way, where steps are added; the draw is the same as long as nobody adds one."""
    samplers = [
        Sampler(sampling, choice=0, prompt_ids=(), num_tokens=50)
        for sampling in (SAMPLING, wider(SAMPLING), wider(SAMPLING, added=1.0))
    ]
    assert [sampler._is_plain for sampler in samplers] == [True, True, False]
    assert [sampler._nucleus for sampler in samplers] == [0.9, 0.9, None]
    for position in range(20):
        logits = np.random.default_rng(position).normal(0, 2, 50).astype(np.float32)
        assert len({sampler.sample(logits, position) for sampler in samplers}) == 1


def test_a_device_gets_no_sampling_and_no_request_with_a_new_field() -> None:
    def states(request: Request) -> frozenset[str]:
        sequence = make_sequence(request)
        Deferral(DeferredChooser(260), lambda lost: None).prepare(sequence)
        return sequence.deferred_states

    request = make_request()
    assert len(states(request)) == len(states(wider(request))) == 4
    assert not states(wider(request, added=1.0))
    assert not states(replace(request, sampling=wider(request.sampling, added=1.0)))


def test_nothing_is_forced_unseen_with_a_new_field() -> None:
    """Each token then comes from a pass of its own; the answer is the same."""
    request = constrained(Demand(output=ListedText((f"a{FORCED}", f"b{FORCED}"))), max_tokens=40)
    driven, seen = Driven(), Driven()
    answer = driven.run(request).token_ids
    assert seen.run(wider(request, added=1.0)).token_ids == answer == alone(request).token_ids
    assert driven.engine.stats.total_steps < 5 and seen.engine.stats.total_steps == len(answer)


def test_a_draft_model_leaves_a_request_with_a_new_field_alone() -> None:
    drafting = Drafting(DraftRunner(), 8, 0.2, Clock(), Stats())
    request = Request("a", "t", (1, 2), SAMPLING, Limits(4))
    assert drafting.drafter(request) is not None and drafting.drafter(wider(request)) is not None
    assert drafting.drafter(wider(request, added=1.0)) is None
