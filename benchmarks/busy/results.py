"""What a run found, as JSON and as a table."""

import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, Self

WORK = ("one stream", "16 streams", "prompts of 500 tokens")
BUSY = (0, 1, 2)


class Figure(NamedTuple):
    """Tokens a second of one measurement."""

    work: str
    num_busy: int
    is_following: bool
    speed: float


@dataclass(frozen=True, slots=True)
class Busy:
    """A run."""

    day: str
    commit: str
    machine: dict[str, object]
    num_threads: int
    figures: list[Figure]
    recoveries_s: dict[str, float]  # until it is as quick as before, after a busy loop

    @classmethod
    def read(cls, path: Path) -> Self:
        fields = json.loads(path.read_text())
        return cls(**{**fields, "figures": [Figure(*figure) for figure in fields["figures"]]})

    def write(self, path: Path) -> None:
        fields = asdict(self)
        lines = ",\n    ".join(json.dumps(figure) for figure in fields.pop("figures"))
        head = json.dumps(fields, indent=2).removesuffix("\n}")
        path.write_text(f'{head},\n  "figures": [\n    {lines}\n  ]\n}}\n')

    def speeds(self, work: str, num_busy: int, is_following: bool) -> list[float]:
        """One a round."""
        return [each.speed for each in self.figures if each[:3] == (work, num_busy, is_following)]

    def speed(self, work: str, num_busy: int, is_following: bool) -> float:
        return statistics.median(self.speeds(work, num_busy, is_following))

    def share(self, work: str, num_busy: int, is_following: bool) -> float:
        """Of the quiet speed of the same kind of threads."""
        return self.speed(work, num_busy, is_following) / self.speed(work, 0, is_following)

    def table(self) -> str:
        lines = ["| tokens a second | threads | quiet | one busy loop | two |", "|---|---|---|---|---|"]
        for work in WORK:
            for is_following in (True, False):
                cells = [
                    f"{self.speed(work, count, is_following):,.0f} ({self.share(work, count, is_following):.2f})"
                    for count in BUSY
                ]
                lines.append(f"| {work} | {'follow' if is_following else 'fixed'} | {' | '.join(cells)} |")
        back = ", ".join(f"{work} {seconds:.1f}" for work, seconds in self.recoveries_s.items())
        return "\n".join([*lines, "", f"Seconds from the end of a busy loop until as quick as before: {back}."])
