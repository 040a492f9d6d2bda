"""The waiting line: first come first served within a tenant, the tenant with the fewest running sequences first."""

from bisect import insort
from collections.abc import Iterator, Mapping

from proxy_inference_engine.engine.sequence import Sequence


class WaitingLine:
    """Sequences without a slot. Preempted ones come back to their old place."""

    def __init__(self) -> None:
        self._lines: dict[str, list[Sequence]] = {}  # tenant → sequences by age

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def __iter__(self) -> Iterator[Sequence]:
        for line in self._lines.values():
            yield from line

    @property
    def tenants(self) -> set[str]:
        return set(self._lines)

    def num_of(self, tenant: str) -> int:
        return len(self._lines.get(tenant, ()))

    def add(self, sequence: Sequence) -> None:
        insort(self._lines.setdefault(sequence.tenant, []), sequence, key=lambda other: other.arrival)

    def remove(self, sequence: Sequence) -> None:
        line = self._lines.get(sequence.tenant, [])
        if sequence in line:
            line.remove(sequence)
            if not line:
                del self._lines[sequence.tenant]

    def in_turn(self, num_running: Mapping[str, int]) -> Iterator[Sequence]:
        """Everyone in the order they should be tried.

        Each sequence counts as one more running of its tenant, as if it were admitted: so tenants alternate.
        """
        counts = dict(num_running)
        positions = dict.fromkeys(self._lines, 0)
        lines = {tenant: list(line) for tenant, line in self._lines.items()}
        while positions:
            tenant = min(positions, key=lambda name: (counts.get(name, 0), lines[name][positions[name]].arrival))
            yield lines[tenant][positions[tenant]]
            counts[tenant] = counts.get(tenant, 0) + 1
            positions[tenant] += 1
            if positions[tenant] == len(lines[tenant]):
                del positions[tenant]
