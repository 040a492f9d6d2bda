"""Who runs, where, and how much of each prompt a step computes."""

from collections.abc import Sequence as SequenceOf

import pytest

from proxy_inference_engine.cache.prefix import PrefixCache
from proxy_inference_engine.engine.passes import Pace
from proxy_inference_engine.engine.scheduler import Scheduler
from proxy_inference_engine.runners.base import Lane, Unread
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.types import Request
from tests.clock import Clock
from tests.deferred import DeferredPicks
from tests.requests import make_request
from tests.unit.engine.driven import ENDLESS, Driven, Faults, alone, make_sequence


class Plan:
    """A scheduler with a chunk of 64 tokens a step, asked for one step."""

    def __init__(self, *requests: Request, lanes: SequenceOf[Lane] = (Lane(16, 1024),)) -> None:
        self.scheduler = Scheduler(FakeRunner(lanes=lanes), PrefixCache(0), Pace(target_s=0.05, alone_target_s=0.25))
        self.sequences = [make_sequence(request, arrival=arrival) for arrival, request in enumerate(requests)]
        for sequence in self.sequences:
            self.scheduler.add(sequence)

    def grants(self) -> dict[str, int]:
        return {grant.sequence.request.id: grant.num_tokens for grant in self.scheduler.schedule()}


def prompts(**lengths: int) -> list[Request]:
    return [make_request(name[0] * length, id=name) for name, length in lengths.items()]


# Grants


def test_a_prompt_is_computed_in_chunks() -> None:
    assert Plan(*prompts(a=200)).grants() == {"a": 64}


def test_the_shortest_prompts_are_computed_first() -> None:
    assert Plan(*prompts(a=10, b=60, c=20, d=30)).grants() == {"a": 10, "c": 20, "d": 30, "b": 4}


def test_the_oldest_prompt_gets_a_quarter_whatever_comes_after_it() -> None:
    assert Plan(*prompts(a=500, b=100, c=40)).grants() == {"a": 16, "c": 40, "b": 8}


def test_a_short_oldest_prompt_leaves_the_rest_of_its_share() -> None:
    assert Plan(*prompts(a=2, b=500)).grants() == {"a": 2, "b": 62}


def test_every_decoding_sequence_gets_its_token() -> None:
    plan = Plan(*prompts(a=5, b=5, c=500))
    plan.scheduler.schedule()
    for sequence in plan.sequences[:2]:
        sequence.num_computed = 4
    assert plan.grants() == {"a": 1, "b": 1, "c": 64}


def test_where_everyone_decodes_a_sequence_that_only_has_to_be_read_gets_nothing() -> None:
    plan = Plan(make_request("aaaaa", id="a", max_tokens=1), *prompts(b=5, c=5))
    plan.scheduler.schedule()
    for sequence in plan.sequences:
        sequence.num_computed = 5
        sequence.append_unread(Unread(DeferredPicks([1]), 0))
    assert plan.grants() == {"b": 1, "c": 1}


def test_grants_are_sorted_by_slot() -> None:
    plan = Plan(*prompts(a=40, b=5, c=10))
    assert [grant.sequence.slot for grant in plan.scheduler.schedule()] == [0, 1, 2]
    for sequence, slot in zip(plan.sequences, [2, 0, 1], strict=True):
        sequence.slot, sequence.num_computed = slot, sequence.num_tokens - 1
    assert list(plan.grants()) == ["b", "c", "a"], "all of them decoding"


def test_echoed_prompts_share_the_logits_of_a_step() -> None:
    requests = [make_request(name * 100, id=name, num_prompt_logprobs=0) for name in "ab"]
    plan = Plan(*requests, make_request("c" * 100, id="c"))
    grants = plan.grants()
    assert sum(grants.get(name, 0) for name in "ab") <= 64 - 1, "the third one may need its last token's"
    assert grants["a"] >= 16


def test_prompt_chunks_are_small_while_others_decode_and_large_alone() -> None:
    steps: list[list[int]] = []
    clock = Clock()
    runner = FakeRunner(
        end_bias=ENDLESS,
        step_seconds=lambda num_tokens: 0.001 * num_tokens,
        sleep=clock.sleep,
        on_forward=lambda rows: steps.append([len(row.ids) for row in rows]),
    )
    driven = Driven(runner, clock=clock)
    driven.run(make_request("warm up" * 20, id="warm"))  # learns 1 ms a token; the targets are 50 and 250 ms
    driven.add(make_request(id="stream", max_tokens=100))
    driven.step(2)
    steps.clear()
    driven.add(make_request("x" * 700, id="long", max_tokens=1))
    driven.step(3)
    assert [row[0] for row in steps] == [1, 1, 1], "the stream gets a token in every step"
    assert all(40 <= row[1] <= 50 for row in steps)
    driven.engine.cancel("stream")
    steps.clear()
    driven.step()
    assert 200 <= steps[0][0] <= 275


# Fairness


def one_lane(num_slots: int, slot_tokens: int = 400) -> Driven:
    return Driven(FakeRunner(lanes=[Lane(num_slots, slot_tokens)], end_bias=ENDLESS))


def of_tenant(tenant: str, number: int, max_tokens: int = 40) -> Request:
    return make_request(f"{number}{tenant} asks", id=f"{tenant}{number}", tenant=tenant, max_tokens=max_tokens)


def test_tenants_take_turns() -> None:
    driven = one_lane(4)
    driven.add(*[of_tenant("a", number) for number in range(6)], *[of_tenant("b", number) for number in range(2)])
    driven.step()
    assert set(driven.slots()) == {"a0", "b0", "a1", "b1"}


def test_the_youngest_of_the_greedy_tenant_makes_room_for_another() -> None:
    driven = one_lane(4)
    driven.add(*[of_tenant("a", number) for number in range(4)])
    driven.step(3)
    driven.add(*[of_tenant("b", number) for number in range(3)])
    driven.step()
    assert set(driven.slots()) == {"a0", "a1", "b0", "b1"}, "two each: the third of b has no better claim"
    assert driven.engine.scheduler.counters.num_preemptions == 2


def test_a_preemption_must_not_turn_the_tables() -> None:
    driven = one_lane(3)
    driven.add(of_tenant("a", 0), of_tenant("a", 1), of_tenant("b", 0))
    driven.step(3)
    driven.add(of_tenant("b", 1))
    driven.step()
    assert set(driven.slots()) == {"a0", "a1", "b0"}, "with b1 in a1's place, a would have the same claim"


def test_within_a_tenant_nobody_is_preempted() -> None:
    driven = one_lane(2)
    driven.add(*[of_tenant("a", number) for number in range(4)])
    driven.step(3)
    assert set(driven.slots()) == {"a0", "a1"}
    assert driven.engine.scheduler.counters.num_preemptions == 0


@pytest.mark.parametrize("max_cache_bytes", [0, 1 << 20])
def test_a_preempted_answer_equals_the_uninterrupted_one(max_cache_bytes: int) -> None:
    driven = Driven(FakeRunner(lanes=[Lane(2, 400)], end_bias=ENDLESS), max_cache_bytes=max_cache_bytes)
    requests = [of_tenant("a", 0), of_tenant("a", 1), of_tenant("b", 0)]
    driven.add(*requests[:2])
    driven.step(10)
    driven.run(requests[2])
    assert driven.engine.scheduler.counters.num_preemptions == 1
    for request in requests:
        heard, expected = driven.heard[request.id, 0], alone(request)
        assert heard.outputs[:-1] == expected.outputs[:-1]
        assert heard.finished.reason == expected.finished.reason


def test_a_preempted_sequence_finds_its_tokens_in_the_cache() -> None:
    driven = one_lane(2)
    driven.add(of_tenant("a", 0), of_tenant("a", 1))
    driven.step(10)
    driven.add(of_tenant("b", 0, max_tokens=1))
    driven.step()
    num_before = driven.runner.num_computed_tokens
    driven.step()
    assert set(driven.slots()) == {"a0", "a1"}
    assert driven.runner.num_computed_tokens == num_before + 2


@pytest.mark.parametrize("max_cache_bytes", [0, 1 << 20])
@pytest.mark.parametrize("num_steps", [1, 2, 3])
def test_an_echoed_prompt_can_be_preempted(num_steps: int, max_cache_bytes: int) -> None:
    """Log-probabilities of positions that were computed twice must not come twice."""
    driven = Driven(FakeRunner(lanes=[Lane(2, 400)], end_bias=ENDLESS), max_cache_bytes=max_cache_bytes)
    echo = make_request("x" * 200, id="a1", tenant="a", max_tokens=2, num_prompt_logprobs=1)
    driven.add(of_tenant("a", 0), echo)
    driven.step(num_steps)
    driven.run(of_tenant("b", 0, max_tokens=3))
    assert driven.engine.scheduler.counters.num_preemptions == 1
    assert driven.heard["a1", 0].outputs[:-1] == alone(echo).outputs[:-1]


# Sharing


def test_requests_that_arrive_together_compute_their_long_prefix_once() -> None:
    driven = Driven()
    prefix = "system prompt " * 20
    driven.run(*[make_request(f"{prefix}{number}....", id=f"r{number}", max_tokens=1) for number in range(5)])
    assert driven.runner.num_computed_tokens == len(prefix) + 5 * 5
    cached = [driven.heard[f"r{number}", 0].prefilled.num_cached_tokens for number in range(5)]
    assert cached == [0] + 4 * [len(prefix)]


def test_answers_from_a_shared_prefix_are_those_without_it() -> None:
    driven = Driven()
    requests = [make_request("system prompt " * 20 + str(number), id=f"r{number}") for number in range(5)]
    driven.run(*requests)
    for request in requests:
        assert driven.heard[request.id, 0].token_ids == alone(request).token_ids


def test_choices_compute_their_prompt_once() -> None:
    driven = Driven()
    driven.run(make_request("p" * 100, num_choices=4, max_tokens=1))
    assert driven.runner.num_computed_tokens == 100 + 3


def test_tenants_share_nothing() -> None:
    driven = Driven()
    driven.run(*[make_request("p" * 100, id=tenant, tenant=tenant, max_tokens=1) for tenant in "ab"])
    driven.run(make_request("p" * 100, id="c", tenant="c", max_tokens=1))
    assert driven.runner.num_computed_tokens == 300


def test_another_tenant_s_prefix_is_not_waited_for() -> None:
    driven = Driven()
    driven.add(*[make_request("p" * 200, id=tenant, tenant=tenant) for tenant in "ab"])
    driven.step()
    assert set(driven.slots()) == {"a", "b"}


def test_a_short_common_prefix_is_not_waited_for() -> None:
    driven = Driven()
    driven.add(*[make_request("p" * 15 + str(number) * 100, id=f"r{number}") for number in range(2)])
    driven.step()
    assert set(driven.slots()) == {"r0", "r1"}


def test_a_prefix_that_the_cache_cannot_hold_is_not_waited_for() -> None:
    driven = Driven(max_cache_bytes=64 * 99)
    driven.add(*[make_request("p" * 100 + str(number), id=f"r{number}") for number in range(2)])
    driven.step()
    assert set(driven.slots()) == {"r0", "r1"}


def test_when_the_one_computing_leaves_another_takes_over() -> None:
    driven = Driven()
    driven.add(*[make_request("p" * 200 + str(number), id=f"r{number}", max_tokens=1) for number in range(3)])
    driven.step()
    assert set(driven.slots()) == {"r0"}
    driven.engine.cancel("r0")
    driven.run()
    assert driven.runner.num_computed_tokens == 201 + 1, "not even the first chunk was lost"


def test_the_second_identical_request_computes_one_prompt_token() -> None:
    driven = Driven()
    first = driven.run(make_request("p" * 100, id="r1", max_tokens=1))
    second = driven.run(make_request("p" * 100, id="r2", max_tokens=1))
    assert driven.runner.num_computed_tokens == 100 + 1
    assert second.prefilled.num_cached_tokens == 99
    assert second.token_ids == first.token_ids


def test_a_finished_conversation_is_there_for_the_next_turn() -> None:
    driven = Driven()
    prompt = list(b"user: hello assistant: ")
    answer = driven.run(make_request(prompt, id="turn1", max_tokens=20)).token_ids
    next_turn = make_request([*prompt, *answer, *b" user: and then?"], id="turn2")
    heard = driven.run(next_turn)
    assert heard.prefilled.num_cached_tokens == len(prompt) + 20 - 1, "all but the token that was never computed"
    assert heard.token_ids == alone(next_turn).token_ids


def test_where_kv_cannot_be_cut_a_conversation_is_continued_from_its_snapshot() -> None:
    driven = Driven(FakeRunner(end_bias=ENDLESS, can_splice=False))
    prompt = list(b"user: hello assistant: ")
    answer = driven.run(make_request(prompt, id="turn1", max_tokens=20)).token_ids
    next_turn = make_request([*prompt, *answer, *b" user: and then?"], id="turn2")
    heard = driven.run(next_turn)
    assert heard.prefilled.num_cached_tokens == len(prompt) + 20 - 1
    assert heard.token_ids == alone(next_turn).token_ids
    assert driven.run(make_request(prompt, id="again")).prefilled.num_cached_tokens == 0


def test_a_cached_prefix_that_cannot_be_restored_is_computed() -> None:
    driven = Driven(FakeRunner(end_bias=ENDLESS, on_copy=Faults(2)))
    requests = [make_request("p" * 100, id=f"r{number}") for number in range(2)]
    for request in requests:  # copies: 1 export, 2 restore
        driven.run(request)
    assert driven.heard["r1", 0].prefilled.num_cached_tokens == 0
    assert driven.heard["r1", 0].token_ids == alone(requests[1]).token_ids


def test_kv_that_cannot_be_exported_is_not_cached() -> None:
    driven = Driven(FakeRunner(end_bias=ENDLESS, on_copy=Faults(1)))
    heard = driven.run(make_request("p" * 100))
    assert heard.finished.reason == "length"
    assert driven.engine.cache.num_tokens == 0


# Room

SHORT_AND_LONG = (Lane(2, 160), Lane(1, 400))  # a slot of 160 takes what has at most 32 tokens at its start


def growing(id: str, tenant: str = "local") -> Request:
    return make_request(f"{id} grows", id=id, tenant=tenant, max_tokens=250)


def test_a_sequence_that_outgrows_its_slot_moves_to_a_longer_one() -> None:
    driven = Driven(FakeRunner(lanes=SHORT_AND_LONG, end_bias=ENDLESS))
    request = growing("r")
    driven.add(request)
    driven.step()
    assert driven.slots() == {"r": 0}
    driven.run()
    assert driven.engine.scheduler.counters.num_moves == 1
    assert driven.runner.num_computed_tokens == len(request.prompt_ids) + 249, "nothing was computed twice"
    assert driven.heard["r", 0].token_ids == alone(request).token_ids


def test_a_sequence_known_to_be_long_starts_in_a_long_slot() -> None:
    driven = Driven(FakeRunner(lanes=SHORT_AND_LONG))
    driven.add(make_request("x" * 100, max_tokens=100))
    driven.step()
    assert driven.slots() == {"r": 2}


def test_a_sequence_that_outgrew_its_slot_waits_for_a_longer_one() -> None:
    driven = Driven(FakeRunner(lanes=SHORT_AND_LONG, end_bias=ENDLESS))
    requests = [growing("r0"), growing("r1")]
    driven.run(*requests)
    assert driven.engine.scheduler.counters.num_preemptions == 1
    for request in requests:
        assert driven.heard[request.id, 0].token_ids == alone(request).token_ids


def test_every_long_lane_is_used() -> None:
    driven = Driven(FakeRunner(lanes=[Lane(2, 100), Lane(1, 400), Lane(1, 400)]))
    driven.add(*[make_request(str(number) * 200, id=f"r{number}") for number in range(2)])
    driven.step()
    assert driven.slots() == {"r0": 2, "r1": 3}


def test_a_sequence_that_outgrows_its_slot_moves_to_any_longer_lane() -> None:
    driven = Driven(FakeRunner(lanes=[Lane(2, 160), Lane(1, 400), Lane(1, 400)], end_bias=ENDLESS))
    driven.run(*[make_request(f"{number} grows", id=f"r{number}", max_tokens=250) for number in range(2)])
    assert driven.engine.scheduler.counters.num_preemptions == 0


def test_a_move_that_fails_costs_only_computation() -> None:
    driven = Driven(FakeRunner(lanes=SHORT_AND_LONG, end_bias=ENDLESS, on_copy=Faults(1)), max_cache_bytes=0)
    request = growing("r")
    heard = driven.run(request)
    assert driven.runner.num_computed_tokens > len(request.prompt_ids) + 249
    assert heard.token_ids == alone(request).token_ids


def test_holes_are_closed_so_that_slots_in_use_stay_together() -> None:
    driven = one_lane(4)
    requests = [make_request(f"{number} runs", id=f"r{number}", max_tokens=30) for number in range(4)]
    driven.add(*requests)
    driven.step(5)
    driven.engine.cancel("r0")
    driven.engine.cancel("r1")
    driven.step()
    assert driven.slots() == {"r2": 2, "r3": 0}, "one move a step"
    driven.step()
    assert driven.slots() == {"r2": 1, "r3": 0}
    assert driven.engine.scheduler.counters.num_moves == 2
    driven.run()
    for request in requests[2:]:
        assert driven.heard[request.id, 0].token_ids == alone(request).token_ids


def test_a_waiting_sequence_fills_a_hole_before_anyone_moves() -> None:
    driven = one_lane(3)
    driven.add(*[make_request(f"{number} runs", id=f"r{number}", max_tokens=30) for number in range(4)])
    driven.step(2)
    driven.engine.cancel("r0")
    driven.step()
    assert driven.slots() == {"r1": 1, "r2": 2, "r3": 0}
    assert driven.engine.scheduler.counters.num_moves == 0


def test_a_release_frees_once_however_often_it_is_called() -> None:
    plan = Plan(*prompts(a=10))
    plan.scheduler.schedule()
    for _ in range(2):
        plan.scheduler.release(plan.sequences[0])
    assert plan.scheduler.slots.num_held == 0
    plan.scheduler.check()


def test_prompts_leave_snapshots_where_memory_cannot_be_cut() -> None:
    """The next prompt that begins the same does not begin anew, though no text is a whole prefix of the other."""
    driven = Driven(FakeRunner(can_splice=False, end_bias=ENDLESS))
    shared = [97 + place % 26 for place in range(700)]
    for index, tail in enumerate(([65] * 20, [66] * 20)):
        driven.add(make_request([*shared, *tail], id=f"r{index}", max_tokens=3))
        driven.run()
    cached = driven.heard["r1", 0].prefilled.num_cached_tokens
    assert 700 // 4 < cached <= 700
    assert driven.heard["r0", 0].prefilled.num_cached_tokens == 0
