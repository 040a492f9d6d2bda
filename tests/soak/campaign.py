"""The whole campaign of attacks and faults: `make soak`, an hour. One table: name, how many, wrong, seconds.

`python -m tests.soak.campaign [--scale 0.01] [PART …]`; with a scale each part is so much of itself. What was wrong
stands below the table, and then the exit status is 1.
"""

import argparse
import time
from collections.abc import Callable, Mapping
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
PARTS: Mapping[str, Part] = {
    "kill -9 of what writes to the store": store_kills.run,
    "kill -9 of a server under load": server_kills.run,
    "kill -9 of one of two servers on PostgreSQL": cluster_kills.run,
    "clients that leave": leaving.run,
    "streams at once": streams.run,
    "twice as many as there is room for": overload.run,
    "mutated bodies": bodies.run,
    "random grammars": grammars.run,
    "walks under random schemas": walks.run,
    "mutated GGUF headers": headers.run,
    "promises of docs/reliability.md": promises.run,
    "long tests": promises.run_long,
    "mixed traffic, real model": traffic.run,
}
_SHOWN = 20  # of what was wrong in a part


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


def table(rows: list[Row]) -> str:
    lines = ["| name | how many | wrong | seconds |", "|---|---|---|---|"]
    for name, outcome, seconds in rows:
        lines.append(f"| {name} | {outcome.num:,} | {len(outcome.wrong):,} | {seconds:.0f} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.campaign")
    parser.add_argument("--scale", type=float, default=1.0, help="so much of each part")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of: {', '.join(PARTS)}")
    given = parser.parse_args()
    rows = []
    for name in given.parts or PARTS:
        print(f"{name} …", flush=True)
        rows.append(play(name, given.scale))
    print(table(rows))
    for name, outcome, _ in rows:
        for reason in outcome.wrong[:_SHOWN]:
            print(f"{name}: {reason}")
    return int(any(outcome.wrong for _, outcome, _ in rows))


if __name__ == "__main__":
    raise SystemExit(main())
