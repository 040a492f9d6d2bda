"""What a run leaves behind: values that go to JSON and back, so that a report can be drawn again without measuring."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report.samples import Samples
from benchmarks.work.overhead import Overhead


@dataclass(slots=True)
class ServerResult:
    """One server over all rounds."""

    key: str
    title: str
    weights: str
    settings: str
    versions: str
    rounds: list[Samples] = field(default_factory=list)
    reason: str | None = None  # why it was not measured, or not to the end
    failures: dict[str, str] = field(default_factory=dict)  # workload → what went wrong

    @property
    def is_measured(self) -> bool:
        return any(self.rounds)


@dataclass(frozen=True, slots=True)
class Memory:
    """Our server's memory after the runs, and what it may be made of."""

    resident_bytes: int
    weight_bytes: int
    kv_bytes: int | None  # None: the server did not say
    cache_bytes: int  # held
    max_cache_bytes: int  # its budget


@dataclass(slots=True)
class Run:
    """Everything of one run."""

    started: str
    commit: str
    is_quick: bool
    machine: dict[str, object]
    num_rounds: int = 0  # that were wanted
    others: list[float] = field(default_factory=list)  # share of the processors others used, for each measurement
    servers: list[ServerResult] = field(default_factory=list)
    overheads: list[Overhead] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)

    def server(self, key: str) -> ServerResult | None:
        return next((server for server in self.servers if server.key == key and server.is_measured), None)

    @property
    def is_complete(self) -> bool:
        """Every server either went through all rounds or has a reason why not."""
        return all(server.reason or len(server.rounds) >= self.num_rounds for server in self.servers)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Run":
        return cls.parse(json.loads(path.read_text()))

    @classmethod
    def parse(cls, data: dict[str, Any]) -> "Run":
        """What `write` wrote, once it is no longer text."""
        data["servers"] = [ServerResult(**server) for server in data["servers"]]
        data["overheads"] = [Overhead(**overhead) for overhead in data["overheads"]]
        data["memory"] = [Memory(**memory) for memory in data["memory"]]
        return cls(**data)
