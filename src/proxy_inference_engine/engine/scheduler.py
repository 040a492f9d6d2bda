"""Who runs, where, and how many tokens each computes in the next step. Pure decisions: no clock, no thread, no logits.

There is no prefill or decode phase. A sequence has tokens to compute; `schedule` grants each running one some of them.
Joining late, prefix hits, chunked prompts and recomputation after preemption are then one path.
"""

import logging
from collections import Counter
from dataclasses import dataclass
from operator import attrgetter

from proxy_inference_engine.cache.disk.tier import DiskTier
from proxy_inference_engine.cache.prefix import PrefixCache, common_prefix
from proxy_inference_engine.cache.slots import Slots
from proxy_inference_engine.engine.grants import echo_grants, has_time_for_prompts, with_drafts, without_rest
from proxy_inference_engine.engine.passes import Pace, claim
from proxy_inference_engine.engine.queue import WaitingLine
from proxy_inference_engine.engine.sequence import Grant, Sequence
from proxy_inference_engine.runners.base import Runner

_log = logging.getLogger(__name__)

_slot_of = attrgetter("sequence.slot")
_arrival_of = attrgetter("arrival")

_HEADROOM = 128  # tokens a sequence should be able to write before it outgrows its slot
_MIN_SHARED = 16  # a shared prefix shorter than this is not worth waiting for
_MIN_SNAPSHOT = 64
_MAX_OLDEST = 0.75  # of a step's prompt tokens, for the oldest prompt: short ones come through beside it


@dataclass(slots=True)
class Counters:
    num_preemptions: int = 0
    num_moves: int = 0


class Scheduler:
    """Owns the slots and the waiting line; moves KV between slots and cache through the runner."""

    def __init__(self, runner: Runner, cache: PrefixCache, pace: Pace) -> None:
        self.slots = Slots(runner.lanes)
        self._capacities = [self.slots.capacity(slot) for slot in range(self.slots.num_slots)]
        self.waiting = WaitingLine()
        self.running: list[Sequence] = []  # by age
        self.computing: list[Sequence] = []  # those of them that a step is made for, while it is
        self.counters = Counters()
        self.disk: DiskTier | None = None  # what the cache has besides memory
        self._runner = runner
        self._cache = cache
        self._pace = pace

    @property
    def num_running(self) -> int:
        return len(self.running)

    def add(self, sequence: Sequence) -> None:
        self.waiting.add(sequence)

    def rest(self) -> None:
        """Nobody asks for anything: give back what only passes needed."""
        if self.disk is not None:
            self.disk.poll()
        self._runner.rest()

    def reset(self) -> None:
        """Nobody runs or waits, and no slot holds anything."""
        self.slots, self.waiting = Slots(self._runner.lanes), WaitingLine()
        self.running, self.computing = [], []
        for slot in range(self.slots.num_slots):
            self._runner.release(slot)

    def release(self, sequence: Sequence, *, keep: bool = True) -> None:
        """Free everything a sequence holds; what it computed stays in the cache if it may be kept. Idempotent."""
        self.waiting.remove(sequence)
        if sequence.slot is None:
            return
        if keep:
            self.publish(sequence, sequence.num_computed)
            if sequence.request.pin_seconds:
                self._cache.pin(sequence.tenant, sequence.ids[: sequence.num_prompt], sequence.request.pin_seconds)
        self._runner.release(sequence.slot)
        self.slots.free(sequence.slot)
        self.running.remove(sequence)
        sequence.slot = None
        sequence.num_computed = 0
        if sequence.drafter is not None:
            sequence.drafter.release()

    def schedule(self) -> list[Grant]:
        """Grants for one step, sorted by slot."""
        if self.disk is not None:
            self.disk.poll(may_wait=self._is_resting)
        self._make_fit()
        self._admit()
        self._close_holes()
        fills_idle = any(sequence.fills_idle for sequence in self.running)
        self.computing = without_rest(self.running, self.waiting.has_wanted, self._pace) if fills_idle else self.running
        grants = sorted(self._plain_grants() or self._mixed_grants(), key=_slot_of)
        self.computing = []
        return grants

    # Admission

    def _admit(self) -> None:
        if not self.waiting:
            return
        blocked: set[tuple[int, str]] = set()  # lanes in which a tenant gets nothing now
        first: dict[int, int] = {}  # the priority that waits for a lane: for a larger one nobody gives way there
        for sequence in self.waiting.in_turn(self._num_running(fills_idle=False), self._num_running(fills_idle=True)):
            if sequence.slot is not None:
                continue
            lane = self._lane_for(sequence)
            if (lane, sequence.tenant) in blocked or (sequence.fills_idle and not self._is_idle(lane)):
                continue
            victim = None if self.slots.has_free(lane) else self._victim(sequence, lane)
            if victim is None and not self.slots.has_free(lane):
                blocked.add((lane, sequence.tenant))
                first.setdefault(lane, sequence.priority)
                continue
            if victim is not None and first.get(lane, sequence.priority) < sequence.priority:
                continue
            if self._is_being_computed(sequence) or self._is_being_read(sequence):
                continue
            if victim is not None:
                self._preempt(victim)
            self._start(sequence, lane)

    def _start(self, sequence: Sequence, lane: int) -> None:
        slot = self.slots.allocate(lane, is_high=sequence.fills_idle)
        assert slot is not None
        sequence.slot = slot
        sequence.num_computed = self._restore(sequence, slot)
        sequence.stops = self._stops(sequence)
        if sequence.num_cached_tokens is None:
            # What a grammar forced before anything was sampled may be cached too, but is no part of the prompt.
            sequence.num_cached_tokens = min(sequence.num_computed, sequence.num_prompt)
        self.waiting.start(sequence)
        self.running.append(sequence)
        self.running.sort(key=_arrival_of)

    def _restore(self, sequence: Sequence, slot: int) -> int:
        """Put the longest cached prefix into the slot; returns its length. A failing copy costs only computation."""
        match = self._cache.match(sequence.root, sequence.reusable_ids, is_hit=True)
        num_tokens = sequence.whole_before(match.num_tokens)
        if match.node is None or num_tokens == 0 or (num_tokens < match.num_tokens and not self._runner.can_splice):
            return 0
        try:
            self._runner.restore(slot, match.segments, num_tokens)
        except Exception:
            _log.exception("a cached prefix could not be restored")
            self._runner.release(slot)
            return 0
        return num_tokens

    def _is_being_computed(self, sequence: Sequence) -> bool:
        """Whether to wait because a running sequence is computing a prefix of this one.

        When it already has, its KV goes to the cache now, where `_start` finds it.
        """
        ids = sequence.reusable_ids
        best, donor = 0, None
        for other in self.running:
            if other.root == sequence.root:
                shared = common_prefix(other.ids, ids)
                # Whoever fills idle time rests while others wait: for that nobody may wait.
                if shared > best and (sequence.fills_idle or not other.fills_idle or other.num_computed >= shared):
                    best, donor = shared, other
        if donor is None or best < _MIN_SHARED:
            return False
        num_cached = self._cache.match(sequence.root, ids).num_tokens
        if best < num_cached + _MIN_SHARED:
            return False
        if donor.num_computed >= best:
            self.publish(donor, best if self._runner.can_splice else donor.num_computed)
            return False
        stops = [stop for stop in donor.stops if donor.num_computed < stop <= best]
        num_coming = best if self._runner.can_splice else max(stops, default=0)
        # A prefix the cache could never hold is not worth waiting for.
        is_held = num_coming * self._runner.info.kv_bytes_per_token <= self._cache.max_bytes
        return is_held and num_coming >= num_cached + _MIN_SHARED

    def _is_being_read(self, sequence: Sequence) -> bool:
        """Whether to wait for what the disk has of a sequence, which is asked once."""
        if sequence.loading is None and self.disk is not None:
            sequence.loading = self.disk.load(sequence.root, sequence.reusable_ids)
        return sequence.loading is not None and not sequence.loading.is_over

    def publish(self, sequence: Sequence, num_tokens: int) -> None:
        """Copy the KV of a running sequence's first tokens into the cache."""
        slot = sequence.slot
        if slot is None or num_tokens == 0 or self._cache.max_bytes == 0:
            return
        try:
            self._cache.insert(
                sequence.root,
                sequence.ids[:num_tokens],
                lambda start: self._runner.export(slot, start, num_tokens),
                self._runner.info.kv_bytes_per_token,
            )
        except Exception:
            _log.exception("a prefix could not be cached")

    def snapshot(self, sequence: Sequence) -> None:
        """Where only whole states can be restored, keep what a prompt has come to: another one may begin the same.

        Taken at the prompt's stops, and whenever it is twice as long as at the last snapshot: so all of them together
        are no more than twice the prompt, but for those at stops.
        """
        is_longer = sequence.num_computed >= max(_MIN_SNAPSHOT, 2 * sequence.num_snapshot)
        if (is_longer or sequence.num_computed in sequence.stops) and not self._runner.can_splice:
            sequence.num_snapshot = sequence.num_computed
            self.publish(sequence, sequence.num_computed)

    def _stops(self, sequence: Sequence) -> tuple[int, ...]:
        """Where a whole state is worth keeping: where an earlier prompt went on differently, for the next may do so
        too, and before the last token, for the same prompt again."""
        if self._runner.can_splice or self._cache.max_bytes == 0:
            return ()
        prompt = sequence.ids[: sequence.num_prompt - 1]
        ends = map(sequence.whole_before, (self._cache.num_known(sequence.root, prompt), len(prompt)))
        first = max(_MIN_SNAPSHOT, sequence.num_computed + _MIN_SHARED)
        return tuple(sorted({end for end in ends if end >= first}))

    # Room

    def _lane_for(self, sequence: Sequence) -> int:
        return self.slots.lane_with_room(min(sequence.max_length, sequence.num_tokens + _HEADROOM))

    def _num_running(self, *, fills_idle: bool) -> Counter[str]:
        return Counter(sequence.tenant for sequence in self.running if sequence.fills_idle == fills_idle)

    def _victim(self, sequence: Sequence, lane: int) -> Sequence | None:
        """Whoever fills idle time there, the youngest. Else the youngest sequence of the tenant that holds most of a
        lane, if that has at least two more than ours, and none that goes before ours."""
        held = [other for other in self.running if self.slots.lane_of(other.slot or 0) == lane]
        idle = [other for other in held if other.fills_idle]
        if idle and not sequence.fills_idle:
            return max(idle, key=_arrival_of)
        counts = Counter(other.tenant for other in held if other.fills_idle == sequence.fills_idle)
        greedy = max(counts, key=lambda tenant: counts[tenant], default="")
        if counts[greedy] < counts[sequence.tenant] + 2:
            return None
        behind = [other for other in held if other.tenant == greedy and other.priority >= sequence.priority]
        return max(behind, key=_arrival_of, default=None)

    @property
    def _is_resting(self) -> bool:
        """Nobody can compute until somebody who waits can start."""
        return not self.running or (self.waiting.has_wanted and all(other.fills_idle for other in self.running))

    def _is_idle(self, lane: int) -> bool:
        """Whether what fills idle time may start there: it would be computed, and a slot is left for who comes."""
        is_left = self.slots.num_free(lane) >= min(2, self.slots.num_slots_of(lane))
        return is_left and not self.waiting.has_wanted and has_time_for_prompts(self.running, self._pace)

    def _preempt(self, sequence: Sequence, *, keep: bool = True) -> None:
        self.release(sequence, keep=keep)
        self.waiting.add(sequence)
        self.counters.num_preemptions += 1

    def _make_fit(self) -> None:
        """Move sequences that outgrew their slots to longer ones; park them when none is free."""
        capacities = self._capacities
        for sequence in list(self.running):
            slot = sequence.slot
            if slot is None or sequence.num_tokens <= capacities[slot] or sequence.is_spent:
                continue
            lane = self.slots.lane_with_room(sequence.num_tokens)
            if not self.slots.has_free(lane):
                self._preempt(self._victim(sequence, lane) or sequence)
            if sequence.slot is not None:
                self._move(sequence, lane)

    def _move(self, sequence: Sequence, lane: int) -> None:
        """Move a sequence into the lowest free slot of a lane; if the copy fails it is computed again later."""
        target = self.slots.allocate(lane, is_high=sequence.fills_idle)
        assert target is not None and sequence.slot is not None
        try:
            self._copy(sequence.slot, target, sequence.num_computed)
        except Exception:
            _log.exception("a sequence could not be moved")
            self._runner.release(target)
            self.slots.free(target)
            self._preempt(sequence, keep=False)
            return
        self._runner.release(sequence.slot)
        self.slots.free(sequence.slot)
        sequence.slot = target
        self.counters.num_moves += 1

    def _copy(self, source: int, target: int, num_tokens: int) -> None:
        if num_tokens:
            segment = self._runner.export(source, 0, num_tokens)
            try:
                self._runner.restore(target, [segment], num_tokens)
            finally:
                segment.free()

    def _close_holes(self) -> None:
        """Fill gaps between slots, since neighbours are computed together; one move per lane and step at most."""
        for lane in range(len(self._runner.lanes)):
            hole = self.slots.hole(lane)
            if hole is not None:
                last = next(sequence for sequence in self.running if sequence.slot == hole[0])
                self._move(last, lane)

    # Grants

    def _plain_grants(self) -> list[Grant] | None:
        """One token each, where nobody has more to compute, as in most steps; elsewhere None.

        A short way to what `_mixed_grants` would say.
        """
        grants = []
        for sequence in self.computing:
            if sequence.num_tokens - sequence.num_computed != 1 or sequence.drafter is not None:
                return None
            if sequence.num_tokens < sequence.max_length or not sequence.is_spent:
                grants.append(Grant(sequence, 1))
        return grants

    def _mixed_grants(self) -> list[Grant]:
        has_echoes = any(sequence.wants_prompt_logprobs for sequence in self.computing)
        echoes = echo_grants(self.computing, self._runner.max_logits) if has_echoes else []
        num_echoed = _count(echoes)
        decoding = self._decode_grants(num_echoed)
        return [*decoding, *echoes, *self._prompt_grants(_count(decoding), num_echoed)]

    def _decode_grants(self, num_echoed: int) -> list[Grant]:
        """One token each, or a whole jump: tokens that a grammar forced are computed with the one before them.

        Guesses of what follows get what is left.
        """
        decoding = [sequence for sequence in self.computing if sequence.is_decoding and not sequence.is_spent]
        room = self._runner.max_batch_tokens - len(self.computing) - num_echoed
        grants = []
        for sequence in decoding:
            num_extra = min(sequence.num_pending - 1, max(0, room))
            room -= num_extra
            grants.append(Grant(sequence, 1 + num_extra))
        if all(grant.sequence.drafter is None for grant in grants):
            return grants
        # A guess wants logits for each of its tokens; half the room is left to prompts.
        num_logits = self._runner.max_logits - len(self.computing) - num_echoed
        return with_drafts(grants, min(room // 2, num_logits), self.slots)

    def _prompt_grants(self, num_decoding: int, num_echoed: int) -> list[Grant]:
        """Tokens of prompts: the shortest first, for they answer soonest, after the oldest one's share, which grows."""
        prompts = [seq for seq in self.computing if not seq.is_decoding and not seq.wants_prompt_logprobs]
        room = self._runner.max_batch_tokens - num_decoding - num_echoed
        if not prompts or room <= 0:
            return []
        age, is_idle = prompts[0].num_prompt_steps, prompts[0].fills_idle
        if is_idle and not self.computing[0].fills_idle:
            budget = min(room, self._pace.num_tokens_beside(num_decoding))
        else:
            budget = self._pace.chunk(num_decoding, room, age, fills_idle=is_idle)
        granted = dict.fromkeys(prompts, 0)
        oldest_share = max(1, int(budget * min(_MAX_OLDEST, claim(age))))
        by_length = sorted(prompts, key=lambda sequence: sequence.num_pending)
        for sequence, share in [(prompts[0], oldest_share), *((sequence, budget) for sequence in by_length)]:
            num_tokens = max(0, min(share, budget, sequence.num_until_stop - granted[sequence]))
            if num_tokens > 0:
                begun = sequence.num_computed + granted[sequence]
                num_tokens = _with_whole_images(sequence, begun, num_tokens, room, is_first=not any(granted.values()))
            granted[sequence] += num_tokens
            budget -= num_tokens
            room -= num_tokens
        for sequence in prompts:
            sequence.num_prompt_steps += 1
        return [Grant(sequence, num_tokens) for sequence, num_tokens in granted.items() if num_tokens > 0]

    # Invariants

    def check(self) -> None:
        """Raise if slots, line and cache disagree; run after every step in tests."""
        held = [sequence.slot for sequence in self.running]
        assert None not in held and len(set(held)) == len(held), "a slot with two owners"
        assert self.slots.num_held == len(held), "slots held by nobody"
        assert all(sequence.slot is None for sequence in self.waiting), "a waiting sequence holds a slot"
        assert self._cache.num_locked == 0, "a lock outlived its step"
        self._cache.check()


def _with_whole_images(sequence: Sequence, begun: int, num_tokens: int, room: int, *, is_first: bool) -> int:
    """About so many tokens of a prompt, with no image cut. An image that does not fit waits for a step with nothing
    before it."""
    num_whole = sequence.whole(begun + num_tokens) - begun
    num_fitting = max(0, sequence.whole_before(begun + room) - begun)
    return num_fitting if num_whole > room and (num_fitting > 0 or not is_first) else num_whole


def _count(grants: list[Grant]) -> int:
    return sum(grant.num_tokens + len(grant.draft_ids) for grant in grants)
