"""Five hundred seeded schedules, and proof that the simulator catches what it is there to catch."""

from collections.abc import Iterator

import pytest

from proxy_inference_engine.cache.prefix import Node, PrefixCache, Shares, common_prefix
from proxy_inference_engine.cache.slots import Slots
from proxy_inference_engine.engine import engine as engine_module
from proxy_inference_engine.engine import scheduler as scheduler_module
from proxy_inference_engine.engine.drafts.draft_model import ModelDrafter
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.grants import with_drafts
from proxy_inference_engine.engine.passes import Passes
from proxy_inference_engine.engine.scheduler import Scheduler
from proxy_inference_engine.engine.sequence import MAX_JUMP, Grant, Sequence
from proxy_inference_engine.runners.base import TokenIds
from proxy_inference_engine.runners.fake import FakeRunner
from tests.drafts import DraftRunner
from tests.sim.simulation import Simulation

_NUM_SEEDS = 500
_BATCH, _LARGE_BATCH = 25, 500


@pytest.mark.parametrize("first", range(0, _NUM_SEEDS, _BATCH))
def test_seeds(first: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")  # injected faults are logged with their tracebacks
    for seed in range(first, first + _BATCH):
        try:
            Simulation(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1_000, 11_000, _LARGE_BATCH))
def test_many_seeds(first: int, caplog: pytest.LogCaptureFixture) -> None:
    """Not all in one: on a slow machine that would take as long as what hangs."""
    caplog.set_level("CRITICAL")
    for seed in range(first, first + _LARGE_BATCH):
        Simulation(seed).run()


def _is_caught(num_seeds: int = 60) -> bool:
    for seed in range(num_seeds):
        try:
            Simulation(seed).run()
        except Exception:
            return True
    return False


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")


def test_catches_a_slot_that_is_never_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slots, "free", lambda self, slot: None)
    assert _is_caught()


def test_catches_kv_that_stays_in_a_released_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeRunner, "release", lambda self, slot: None)
    assert _is_caught()


def test_catches_a_double_release(monkeypatch: pytest.MonkeyPatch) -> None:
    release = Scheduler.release

    def twice(self: Scheduler, sequence: Sequence, *, keep: bool = True) -> None:
        slot = sequence.slot
        release(self, sequence, keep=keep)
        if slot is not None:
            self.slots.free(slot)

    monkeypatch.setattr(Scheduler, "release", twice)
    assert _is_caught()


def test_catches_a_missing_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: PrefixCache, node: Node) -> None:
        pass

    monkeypatch.setattr(PrefixCache, "lock", nothing)
    monkeypatch.setattr(PrefixCache, "unlock", nothing)
    assert _is_caught(num_seeds=200)


def test_catches_an_eviction_from_another_s_fair_share(monkeypatch: pytest.MonkeyPatch) -> None:
    def oldest(self: PrefixCache, tenant: str | None = None, num_bytes: int = 0) -> bool:
        return self._evict_from(self._recency)

    monkeypatch.setattr(PrefixCache, "evict_one", oldest)
    assert _is_caught()


def test_catches_a_share_that_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shares, "count", lambda self, tenant, num_bytes: None)
    assert _is_caught()


def test_catches_a_walk_into_a_foreign_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    """This bug was real: the edge was measured after the caller had split it."""

    def walk(self: PrefixCache, tenant: str, ids: TokenIds) -> Iterator[tuple[Node, int]]:
        node, depth = self._roots.get(tenant), 0
        while node is not None and depth < len(ids):
            child = node.children.get(int(ids[depth]))
            if child is None:
                return
            num_shared = common_prefix(child.ids, ids[depth:])
            yield child, num_shared
            if num_shared < len(child.ids):
                return
            depth += num_shared
            node = child

    monkeypatch.setattr(PrefixCache, "_walk", walk)
    assert _is_caught(num_seeds=200)


def test_catches_a_prefix_of_the_wrong_length(monkeypatch: pytest.MonkeyPatch) -> None:
    truncate_less = FakeRunner.restore

    def longer(self: FakeRunner, slot: int, segments: list[object], num_tokens: int) -> None:
        truncate_less(self, slot, segments, num_tokens)  # type: ignore[arg-type]
        self.truncate(slot, num_tokens - 1)
        self._slots[slot].append(1)

    monkeypatch.setattr(FakeRunner, "restore", longer)
    assert _is_caught()


def test_catches_a_jump_that_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    jump = StepEngine._jump

    def silent(self: StepEngine, sequence: Sequence) -> list[int]:
        jump(self, sequence)
        return []

    monkeypatch.setattr(StepEngine, "_jump", silent)
    assert _is_caught()


def test_catches_a_jump_past_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def over(self: StepEngine, sequence: Sequence) -> list[int]:
        if sequence.matcher is None or sequence.request.num_top_logprobs is not None:
            return []
        forced = sequence.matcher.forced()
        for token_id in forced:
            sequence.append(token_id)
            sequence.samplers.accept(token_id)
            sequence.matcher.accept(token_id)
        return forced

    monkeypatch.setattr(StepEngine, "_jump", over)
    assert _is_caught()


def test_catches_a_jump_of_which_only_the_last_token_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def skipping(self: Scheduler, *args: object) -> list[Grant]:
        for sequence in self.running:
            if sequence.is_decoding:
                sequence.num_computed = sequence.num_tokens - 1
        return [Grant(sequence, 1) for sequence in self.running if sequence.is_decoding]

    monkeypatch.setattr(Scheduler, "_decode_grants", skipping)
    assert _is_caught()


def test_catches_a_wrong_guess_that_stays_in_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Passes, "cut", lambda self, sequence: None)
    assert _is_caught()


def test_catches_a_guess_that_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    def believing(chosen: TokenIds, draft_ids: TokenIds) -> int:
        return min(len(chosen), len(draft_ids))

    monkeypatch.setattr(engine_module, "common_prefix", believing)
    assert _is_caught()


def test_catches_guesses_that_want_too_many_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    def lavish(grants: list[Grant], _room: int, slots: Slots) -> list[Grant]:
        return with_drafts(grants, 500, slots)

    monkeypatch.setattr(scheduler_module, "with_drafts", lavish)
    assert _is_caught()


def test_catches_what_fills_idle_time_while_somebody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(running: list[Sequence], _has_wanted_waiting: bool, _pace: object) -> list[Sequence]:
        return running

    monkeypatch.setattr(scheduler_module, "without_rest", careless)
    assert _is_caught()


def test_catches_a_slot_of_the_draft_model_that_is_never_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelDrafter, "release", lambda self: None)
    assert _is_caught()


def test_catches_a_wrong_guess_that_stays_in_the_draft_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DraftRunner, "truncate", lambda self, slot, num_tokens: None)
    assert _is_caught()


def test_schedules_reach_every_corner(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeds are worth their time only if they preempt, move, hit the cache, jump, guess, fail and cancel."""
    jumps: list[int] = []
    jump = StepEngine._jump

    def counting(self: StepEngine, sequence: Sequence) -> list[int]:
        forced = jump(self, sequence)
        jumps.append(len(forced))
        return forced

    monkeypatch.setattr(StepEngine, "_jump", counting)
    preemptions = moves = cached = failures = cancels = given = taken = 0
    accepted = rejected = drafted = right = ended = 0
    for seed in range(80):
        simulation = Simulation(seed)
        simulation.run()
        preemptions += simulation.engine.scheduler.counters.num_preemptions
        moves += simulation.engine.scheduler.counters.num_moves
        cached += simulation.engine.stats.total_prompt_tokens_cached
        failures += len(simulation.failed)
        cancels += len(simulation.cancelled)
        given += simulation.num_given
        taken += simulation.num_taken
        accepted += sum(heard.num_accepted for heard in simulation.heard.values())
        rejected += sum(heard.num_rejected for heard in simulation.heard.values())
        drafted += simulation.engine.stats.total_model_draft_tokens
        right += simulation.engine.stats.total_model_draft_tokens_accepted
        ended += simulation.draft is not None and simulation.draft.is_closed
    assert min(preemptions, moves, cached, failures, cancels, given, taken) > 20
    assert min(accepted, rejected) > 500
    assert min(right, drafted - right) > 100 and ended > 0
    assert sum(num > 1 for num in jumps) > 100 and sum(num > MAX_JUMP for num in jumps) > 20
