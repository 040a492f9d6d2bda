"""Who waits: in which order sequences get their turn, and how many may wait before a request is refused."""

from bisect import insort
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from proxy_inference_engine.engine.base import Place
from proxy_inference_engine.engine.embedding import EmbeddingJob
from proxy_inference_engine.engine.sequence import Sequence
from proxy_inference_engine.errors import QueueFull
from proxy_inference_engine.types import IDLE_PRIORITY, Request

_NUM_ENDS = 16  # of answers, by which the time of a turn is guessed
PATIENCE = 32  # starts of those that go first, after which one that they passed has the next turn
_Lines = dict[str, list[Sequence]]  # tenant → sequences by age


class WaitingLine:
    """Sequences without a slot, by priority. Within one: first come first served within a tenant, the tenant with the
    fewest running ones first.

    Preempted ones come back to their old place. A priority that others passed so often that it would starve has a turn
    of its own; only what fills idle time waits for as long as there is anybody else.
    """

    def __init__(self) -> None:
        self._levels: dict[int, _Lines] = {}  # by priority
        self._num_passed: dict[int, int] = {}  # starts before those of a priority while some of it waited

    def __len__(self) -> int:
        return sum(len(line) for lines in self._levels.values() for line in lines.values())

    def __iter__(self) -> Iterator[Sequence]:
        for lines in self._levels.values():
            for line in lines.values():
                yield from line

    @property
    def has_wanted(self) -> bool:
        """Whether somebody waits who does not just fill idle time."""
        return any(priority < IDLE_PRIORITY for priority in self._levels)

    def add(self, sequence: Sequence) -> None:
        lines = self._levels.setdefault(sequence.priority, {})
        insort(lines.setdefault(sequence.tenant, []), sequence, key=lambda other: other.arrival)

    def remove(self, sequence: Sequence) -> None:
        lines = self._levels.get(sequence.priority, {})
        line = lines.get(sequence.tenant, [])
        if sequence in line:
            line.remove(sequence)
            if not line:
                del lines[sequence.tenant]
            if not lines:
                del self._levels[sequence.priority]
                self._num_passed.pop(sequence.priority, None)

    def start(self, sequence: Sequence) -> None:
        """Take out a sequence that got a slot, and count that it went before all of a larger priority."""
        self.remove(sequence)
        self._num_passed.pop(sequence.priority, None)
        for priority in self._levels:
            if sequence.priority < priority < IDLE_PRIORITY:
                self._num_passed[priority] = self._num_passed.get(priority, 0) + 1

    def in_turn(self, num_running: Mapping[str, int], num_idle: Mapping[str, int] | None = None) -> Iterator[Sequence]:
        """Everyone in the order they should be tried, some of them twice. `num_idle`: running ones that fill idle time.

        Each sequence counts as one more running of its tenant, as if it were admitted: so tenants alternate.
        """
        for priority in self._passed_over():
            yield next(_alternating(self._levels[priority], dict(num_running)))
        counts, idle_counts = dict(num_running), dict(num_idle or {})
        for priority in sorted(self._levels):
            if priority in self._levels:  # the line may change while it is gone through
                yield from _alternating(self._levels[priority], idle_counts if priority >= IDLE_PRIORITY else counts)

    def _passed_over(self) -> list[int]:
        """Priorities whose turn has come, the one that was passed most often first."""
        if not self._num_passed:
            return []
        passed = [(count, priority) for priority, count in self._num_passed.items() if count >= PATIENCE]
        return [priority for _, priority in sorted(passed, reverse=True)]

    def unbegun(self, arrived_before: float) -> list[Sequence]:
        """The sequences that arrived before a time and have never run."""
        return [
            sequence
            for sequence in self
            if sequence.arrived_at < arrived_before and sequence.started_at is None and not sequence.fills_idle
        ]


def _alternating(of: _Lines, counts: dict[str, int]) -> Iterator[Sequence]:
    positions = dict.fromkeys(of, 0)
    lines = {tenant: list(line) for tenant, line in of.items()}
    while positions:
        tenant = min(positions, key=lambda name: (counts.get(name, 0), lines[name][positions[name]].arrival))
        yield lines[tenant][positions[tenant]]
        counts[tenant] = counts.get(tenant, 0) + 1
        positions[tenant] += 1
        if positions[tenant] == len(lines[tenant]):
            del positions[tenant]


class RequestBook:
    """The requests that were submitted and are not over, as the event loop knows them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.unanswered: dict[str, Request] = {}  # nothing came of them yet; by age
        self._answering: dict[str, Request] = {}
        self._ends: deque[float] = deque(maxlen=_NUM_ENDS)
        self._clock = clock

    def enter(self, request: Request) -> None:
        self.unanswered[request.id] = request

    def begin(self, request_id: str) -> None:
        """Something came. Harmless the second time."""
        request = self.unanswered.pop(request_id, None)
        if request is not None:
            self._answering[request_id] = request

    def leave(self, request_id: str) -> None:
        """Strike out a request that is over, or that nobody waits for. Harmless the second time."""
        self.unanswered.pop(request_id, None)
        if self._answering.pop(request_id, None) is not None:
            self._ends.append(self._clock())

    def place(self, request: Request, num_slots: int) -> Place | None:
        """None: it does not wait."""
        if request.id not in self.unanswered:
            return None
        num_before, is_older = 0, True
        for other in self.unanswered.values():
            is_older = is_older and other is not request
            if other is not request and (other.priority, not is_older) <= (request.priority, False):
                num_before += other.num_choices
        # Whatever fills idle time gives way, so it takes nobody's slot.
        limit = max(IDLE_PRIORITY - 1, request.priority)
        num_before += sum(other.num_choices for other in self._answering.values() if other.priority <= limit)
        position = max(0, num_before + 1 - num_slots)
        return Place(position, self._wait_s(position))

    def _wait_s(self, position: int) -> float | None:
        """How long it takes until so many have ended, if they go on ending as they did of late."""
        if not position:
            return 0.0
        if len(self._ends) < _NUM_ENDS // 4:
            return None
        return position * (self._clock() - self._ends[0]) / len(self._ends)


@dataclass(frozen=True, slots=True)
class Admission:
    """Limits on what waits. What can be computed at once may wait beside them. Knows counts and keys, no queue.

    What fills idle time is counted apart: it keeps nobody else out.
    """

    max_waiting: int = 256
    max_waiting_per_tenant: int = 64
    max_waiting_tokens: int = 2_000_000

    def check_request(self, request: Request, waiting: Collection[Request], num_slots: int) -> None:
        """`waiting` has the requests that nothing came of yet. Raises QueueFull."""
        fills_idle = request.priority >= IDLE_PRIORITY
        waiting = [other for other in waiting if (other.priority >= IDLE_PRIORITY) == fills_idle]
        num_waiting = sum(other.num_choices for other in waiting)
        if num_waiting >= self.max_waiting + num_slots:
            raise QueueFull(f"{num_waiting} answers are waited for already; try again soon", retry_after_s=2)
        num_own = sum(other.num_choices for other in waiting if other.tenant == request.tenant)
        if num_own >= self.max_waiting_per_tenant + num_slots:
            raise QueueFull(f"this key waits for {num_own} answers already; try again soon", retry_after_s=2)
        num_tokens = sum(len(other.prompt_ids) for other in waiting) + len(request.prompt_ids)
        if waiting and num_tokens > self.max_waiting_tokens:
            raise QueueFull("too many prompt tokens are waiting already; try again soon", retry_after_s=5)

    def check_job(self, job: EmbeddingJob, waiting: Collection[EmbeddingJob]) -> None:
        """`waiting` has the jobs that are not over. Raises QueueFull."""
        waiting = [other for other in waiting if other.fills_idle == job.fills_idle]
        if len(waiting) >= self.max_waiting:
            raise QueueFull(f"{len(waiting)} embedding requests wait already; try again soon", retry_after_s=2)
        num_own = sum(other.tenant == job.tenant for other in waiting)
        if num_own >= self.max_waiting_per_tenant:
            raise QueueFull(f"{num_own} embedding requests of this key wait already; try again soon", retry_after_s=2)
        if waiting and sum(other.num_tokens for other in waiting) + job.num_tokens > self.max_waiting_tokens:
            raise QueueFull("too many tokens wait to be embedded already; try again soon", retry_after_s=5)
