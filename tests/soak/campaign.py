"""The whole campaign of attacks and faults: `make soak`, an hour. One table: name, how many, wrong, seconds.

`python -m tests.soak.campaign [--scale 0.01] [PART …]`; with a scale each part is so much of itself. What was wrong
stands below the table, and then the exit status is 1.

Each part is a process of its own, and there are as many at a time as cores: parts wait for much, and one alone seldom
uses more than one core. Those that measure how long somebody waits come last and alone.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.soak import (
    bodies,
    cluster_kills,
    grammars,
    headers,
    leaving,
    overload,
    promises,
    server_kills,
    store_kills,
    streams,
    traffic,
    walks,
)
from tests.soak.outcome import Outcome

Part = Callable[[float], Outcome]
# The longest first, so that no core is idle for long at the end.
PARTS: Mapping[str, Part] = {
    "mixed traffic, real model": traffic.run,
    "seeds of the simulator": promises.run_seeds,
    "promises of docs/reliability.md": promises.run,
    "long tests": promises.run_long,
    "kill -9 of a server under load": server_kills.run,
    "kill -9 of one of two servers on PostgreSQL": cluster_kills.run,
    "random grammars": grammars.run,
    "kill -9 of what writes to the store": store_kills.run,
    "clients that leave": leaving.run,
    "twice as many as there is room for": overload.run,
    "mutated bodies": bodies.run,
    "walks under random schemas": walks.run,
    "streams at once": streams.run,
    "mutated GGUF headers": headers.run,
    "waits at a full store": promises.run_waits,
}
_ALONE = {"waits at a full store"}
_MOST_AT_ONCE = 4
_SHOWN = 20  # of what was wrong in a part
_ROOT = Path(__file__).parents[2]


class Row(NamedTuple):
    name: str
    outcome: Outcome
    seconds: float


def play(name: str, scale: float) -> Row:
    began = time.monotonic()
    try:
        outcome = PARTS[name](scale)
    except Exception as error:  # a part that breaks off is wrong, and the others go on
        outcome = Outcome(0, [f"it broke off: {type(error).__name__}: {error}"])
    return Row(name, outcome, time.monotonic() - began)


def play_apart(name: str, scale: float) -> Row:
    """In a process of its own, which may end as it likes."""
    began = time.monotonic()
    print(f"{name} …", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "row"
        command = [sys.executable, "-m", __spec__.name, "--scale", str(scale), "--tell", str(told), name]
        status = subprocess.run(command, cwd=_ROOT).returncode
        if told.exists():
            num, wrong = json.loads(told.read_text())
            outcome = Outcome(num, wrong)
        else:
            outcome = Outcome(0, [f"its process ended with {status}"])
    return Row(name, outcome, time.monotonic() - began)


def play_all(names: Sequence[str], scale: float) -> list[Row]:
    """In the order of the names, whoever was done first."""
    rows = dict[str, Row]()
    beside = [name for name in names if name not in _ALONE]
    with ThreadPoolExecutor(min(_MOST_AT_ONCE, os.cpu_count() or 1)) as lanes:
        rows.update((row.name, row) for row in lanes.map(lambda name: play_apart(name, scale), beside))
    rows.update((name, play_apart(name, scale)) for name in names if name in _ALONE)
    return [rows[name] for name in names]


def table(rows: list[Row]) -> str:
    lines = ["| name | how many | wrong | seconds |", "|---|---|---|---|"]
    for name, outcome, seconds in rows:
        lines.append(f"| {name} | {outcome.num:,} | {len(outcome.wrong):,} | {seconds:.0f} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.campaign")
    parser.add_argument("--scale", type=float, default=1.0, help="so much of each part")
    parser.add_argument("--tell", type=Path, help=argparse.SUPPRESS)  # where one part writes what it found
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of: {', '.join(PARTS)}")
    given = parser.parse_args()
    if given.tell is not None:
        (name,) = given.parts
        given.tell.write_text(json.dumps(play(name, given.scale).outcome))
        return 0
    began = time.monotonic()
    rows = play_all(given.parts or list(PARTS), given.scale)
    print(table(rows))
    print(f"{time.monotonic() - began:.0f} seconds in all")
    for name, outcome, _ in rows:
        for reason in outcome.wrong[:_SHOWN]:
            print(f"{name}: {reason}")
    return int(any(outcome.wrong for _, outcome, _ in rows))


if __name__ == "__main__":
    raise SystemExit(main())
