"""Who runs, where, and how many tokens each computes in the next step. Pure decisions: no clock, no thread, no logits.

There is no prefill or decode phase. A sequence has tokens to compute; `schedule` grants each running one some of them.
Joining late, prefix hits, chunked prompts and recomputation after preemption are then one path.
"""

import logging
import math
from collections import Counter
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from proxy_inference_engine.cache.disk import DiskTier
from proxy_inference_engine.cache.prefix import PrefixCache, common_prefix
from proxy_inference_engine.cache.slots import Slots
from proxy_inference_engine.engine.pace import Pace
from proxy_inference_engine.engine.sequence import Sequence
from proxy_inference_engine.engine.speculation import NO_DRAFT
from proxy_inference_engine.engine.waiting import WaitingLine
from proxy_inference_engine.runners.base import Runner, TokenIds

_log = logging.getLogger(__name__)

_slot_of = attrgetter("sequence.slot")

_HEADROOM = 128  # tokens a sequence should be able to write before it outgrows its slot
_MIN_SHARED = 16  # a shared prefix shorter than this is not worth waiting for
_MIN_SNAPSHOT = 64
_ECHO_CHUNK = 48
_OLDEST_SHARE = 4  # the oldest prompt gets at least 1/4 of a step, so that short ones never starve it


class Grant(NamedTuple):
    """So many of a sequence's own tokens; after the last of them, a guess of what may follow."""

    sequence: Sequence
    num_tokens: int
    draft_ids: TokenIds = NO_DRAFT


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
        self.counters = Counters()
        self.disk: DiskTier | None = None  # what the cache has besides memory
        self._runner = runner
        self._cache = cache
        self._pace = pace

    def add(self, sequence: Sequence) -> None:
        self.waiting.add(sequence)

    def rest(self) -> None:
        """Nobody asks for anything."""
        if self.disk is not None:
            self.disk.poll()
        self._runner.rest()

    def release(self, sequence: Sequence, *, keep: bool = True) -> None:
        """Free everything a sequence holds; what it computed stays in the cache if it may be kept. Idempotent."""
        self.waiting.remove(sequence)
        if sequence.slot is None:
            return
        if keep:
            self.publish(sequence, sequence.num_computed)
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
            self.disk.poll(may_wait=not self.running)
        self._make_fit()
        self._admit()
        self._close_holes()
        return sorted(self._plain_grants() or self._mixed_grants(), key=_slot_of)

    # Admission

    def _admit(self) -> None:
        if not self.waiting:
            return
        blocked: set[tuple[int, str]] = set()  # lanes in which a tenant gets nothing now
        for sequence in self.waiting.in_turn(self._num_running()):
            lane = self._lane_for(sequence)
            if (lane, sequence.tenant) in blocked:
                continue
            victim = None if self.slots.has_free(lane) else self._victim(sequence, lane)
            if victim is None and not self.slots.has_free(lane):
                blocked.add((lane, sequence.tenant))
                continue
            if self._is_being_computed(sequence) or self._is_being_read(sequence):
                continue
            if victim is not None:
                self._preempt(victim)
            self._start(sequence, lane)

    def _start(self, sequence: Sequence, lane: int) -> None:
        slot = self.slots.allocate(lane)
        assert slot is not None
        sequence.slot = slot
        sequence.num_computed = self._restore(sequence, slot)
        sequence.stops = self._stops(sequence)
        if sequence.num_cached_tokens is None:
            # What a grammar forced before anything was sampled may be cached too, but is no part of the prompt.
            sequence.num_cached_tokens = min(sequence.num_computed, sequence.num_prompt)
        self.waiting.remove(sequence)
        self.running.append(sequence)
        self.running.sort(key=lambda other: other.arrival)

    def _restore(self, sequence: Sequence, slot: int) -> int:
        """Put the longest cached prefix into the slot; its length. A failing copy only costs the computation."""
        match = self._cache.match(sequence.tenant, sequence.reusable_ids)
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
            if other.tenant == sequence.tenant:
                shared = common_prefix(other.ids, ids)
                if shared > best:
                    best, donor = shared, other
        if donor is None or best < _MIN_SHARED:
            return False
        num_cached = self._cache.match(sequence.tenant, ids).num_tokens
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
        """Whether to wait for what the disk has of it, which is asked once."""
        if sequence.loading is None and self.disk is not None:
            sequence.loading = self.disk.load(sequence.tenant, sequence.reusable_ids)
        return sequence.loading is not None and not sequence.loading.is_over

    def publish(self, sequence: Sequence, num_tokens: int) -> None:
        """Copy the KV of a running sequence's first tokens into the cache."""
        slot = sequence.slot
        if slot is None or num_tokens == 0 or self._cache.max_bytes == 0:
            return
        try:
            self._cache.insert(
                sequence.tenant,
                sequence.ids[:num_tokens],
                lambda start: self._runner.export(slot, start, num_tokens),
                self._runner.info.kv_bytes_per_token,
            )
        except Exception:
            _log.exception("a prefix could not be cached")

    def snapshot(self, sequence: Sequence) -> None:
        """Where only whole states can be restored, keep what a prompt has come to: another one may begin the same.

        At its stops, and whenever it is twice as long, so that all the others together are no more than twice the
        prompt.
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
        ends = map(sequence.whole_before, (self._cache.num_known(sequence.tenant, prompt), len(prompt)))
        first = max(_MIN_SNAPSHOT, sequence.num_computed + _MIN_SHARED)
        return tuple(sorted({end for end in ends if end >= first}))

    # Room

    def _lane_for(self, sequence: Sequence) -> int:
        return self.slots.lane_with_room(min(sequence.max_length, sequence.num_tokens + _HEADROOM))

    def _num_running(self) -> Counter[str]:
        return Counter(sequence.tenant for sequence in self.running)

    def _victim(self, sequence: Sequence, lane: int) -> Sequence | None:
        """The youngest of the tenant that holds most of a lane, if without it that tenant is no worse off than ours."""
        held = [other for other in self.running if self.slots.lane_of(other.slot or 0) == lane]
        counts = Counter(other.tenant for other in held)
        greedy = max(counts, key=lambda tenant: counts[tenant])
        if counts[greedy] < counts[sequence.tenant] + 2:
            return None
        return max((other for other in held if other.tenant == greedy), key=lambda other: other.arrival)

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
        """Into the lowest free slot of a lane; if the copy fails the sequence is computed again later."""
        target = self.slots.allocate(lane)
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
        """One move per lane and step at most: rows next to each other are computed together."""
        for lane in range(len(self._runner.lanes)):
            hole = self.slots.hole(lane)
            if hole is not None:
                last = next(sequence for sequence in self.running if sequence.slot == hole[0])
                self._move(last, lane)

    # Grants

    def _plain_grants(self) -> list[Grant] | None:
        """What `_mixed_grants` would say where everyone has one token to compute, as in most steps; else None."""
        grants = []
        for sequence in self.running:
            if sequence.num_tokens - sequence.num_computed != 1 or sequence.drafter is not None:
                return None
            if sequence.num_tokens < sequence.max_length or not sequence.is_spent:
                grants.append(Grant(sequence, 1))
        return grants

    def _mixed_grants(self) -> list[Grant]:
        echoes = self._echo_grants()
        num_echoed = _count(echoes)
        decoding = self._decode_grants(num_echoed)
        return [*decoding, *echoes, *self._prompt_grants(_count(decoding), num_echoed)]

    def _decode_grants(self, num_echoed: int) -> list[Grant]:
        """One token each, or a whole jump: tokens that a grammar forced are computed with the one before them.

        Guesses of what follows get what is left.
        """
        decoding = [sequence for sequence in self.running if sequence.is_decoding and not sequence.is_spent]
        room = self._runner.max_batch_tokens - len(self.running) - num_echoed
        grants = []
        for sequence in decoding:
            num_extra = min(sequence.num_pending - 1, max(0, room))
            room -= num_extra
            grants.append(Grant(sequence, 1 + num_extra))
        # A guess wants logits for each of its tokens; half the room is left to prompts.
        num_logits = self._runner.max_logits - len(self.running) - num_echoed
        return self._with_drafts(grants, min(room // 2, num_logits))

    def _with_drafts(self, grants: list[Grant], room: int) -> list[Grant]:
        """Each row may use its share of the room, rounded up, and what those before it left."""
        if all(grant.sequence.drafter is None for grant in grants):
            return grants
        drafted = []
        for index, grant in enumerate(grants):
            draft_ids = self._draft(grant, math.ceil(room / (len(grants) - index)))
            room -= len(draft_ids)
            drafted.append(grant._replace(draft_ids=draft_ids))
        return drafted

    def _draft(self, grant: Grant, share: int) -> TokenIds:
        sequence, num_tokens, _ = grant
        if sequence.drafter is None or not sequence.is_prefilled or num_tokens < sequence.num_pending:
            return NO_DRAFT
        assert sequence.slot is not None
        slot_room = self.slots.capacity(sequence.slot) - sequence.num_tokens
        # One token is chosen anyway, after the last one that is right.
        answer_room = sequence.max_length - sequence.num_tokens - 1
        return sequence.drafter.propose(sequence.ids, min(share, slot_room, answer_room))

    def _prompt_grants(self, num_decoding: int, num_echoed: int) -> list[Grant]:
        """The shortest prompts first, for they answer soonest, after the oldest one's share."""
        prompts = [seq for seq in self.running if not seq.is_decoding and not seq.wants_prompt_logprobs]
        room = self._runner.max_batch_tokens - num_decoding - num_echoed
        if not prompts or room <= 0:
            return []
        budget = self._pace.chunk(num_decoding, room)
        granted = dict.fromkeys(prompts, 0)
        oldest_share = max(1, budget // _OLDEST_SHARE)
        by_length = sorted(prompts, key=lambda sequence: sequence.num_pending)
        for sequence, share in [(prompts[0], oldest_share), *((sequence, budget) for sequence in by_length)]:
            num_tokens = max(0, min(share, budget, sequence.num_until_stop - granted[sequence]))
            if num_tokens > 0:
                begun = sequence.num_computed + granted[sequence]
                num_tokens = _with_whole_images(sequence, begun, num_tokens, room, is_first=not any(granted.values()))
            granted[sequence] += num_tokens
            budget -= num_tokens
            room -= num_tokens
        return [Grant(sequence, num_tokens) for sequence, num_tokens in granted.items() if num_tokens > 0]

    def _echo_grants(self) -> list[Grant]:
        """Prompts whose every token is scored go in chunks of one size, whoever else is there.

        The size of a chunk shows in the last digits of the logits, and a score must not depend on the traffic. Logits
        of a step are limited; at least the oldest of these prompts gets on.
        """
        echoes = [seq for seq in self.running if seq.num_pending > 1 and seq.wants_prompt_logprobs]
        num_logits = self._runner.max_logits - (len(self.running) - len(echoes))
        grants: list[Grant] = []
        for sequence in echoes:
            num_tokens = min(_ECHO_CHUNK, sequence.num_pending)
            if num_tokens > num_logits and grants:
                break
            num_tokens = min(num_tokens, max(1, num_logits))
            grants.append(Grant(sequence, num_tokens))
            num_logits -= num_tokens
        return grants

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
    """About so many tokens, with no image cut. One that does not fit waits for a step in which nothing is before it."""
    num_whole = sequence.whole(begun + num_tokens) - begun
    num_fitting = max(0, sequence.whole_before(begun + room) - begun)
    return num_fitting if num_whole > room and (num_fitting > 0 or not is_first) else num_whole


def _count(grants: list[Grant]) -> int:
    return sum(grant.num_tokens + len(grant.draft_ids) for grant in grants)
