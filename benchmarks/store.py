"""What the store carries: responses saved and read per second, in a file and in PostgreSQL, by one server and several.

`python -m benchmarks.store [--seconds 5]`; PostgreSQL is one of its own on this machine, whose commits wait for the
disk. Each server is a process with as many tasks as requests may end at once. The processor's time, of servers and of
the database together, is what says most where the machine is busy with something else; it needs Linux.
"""

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from proxy_inference_engine.store import Record, Store, StoreLimits
from scripts.postgres import cluster, find_programs

_CASES = ((1, 1), (1, 64), (2, 64), (4, 64))  # servers, tasks of each
_TEXT = "All that was said in an answer of about three hundred tokens. " * 25
_EVENTS = random.Random(1).randbytes(3000).hex()  # packed as they are, they do not shrink again
_NUM_READ = 200
_LIMITS = StoreLimits(max_rows=1 << 40)


class Load(NamedTuple):
    where: Path | str
    number: int  # of the server
    num_tasks: int
    seconds: float
    reads: bool


class Rate(NamedTuple):
    per_second: float
    worst_ms: float  # of 99 in a hundred
    processor_ms: float  # for each


class Place(NamedTuple):
    where: Path | str
    process: int | None = None  # of a database that is one of its own


def _record(id_: str, owner: str) -> Record:
    body = {"id": id_, "object": "response", "status": "completed", "output": [{"type": "message", "text": _TEXT}]}
    return Record("response", id_, owner, 100, body, {"num_input": 1, "frames": _EVENTS}, turn=[{"text": _TEXT}])


def _work(load: Load) -> tuple[list[float], float]:
    """The seconds that each took, and those of the processor for all."""
    with closing(Store.open(load.where, limits=_LIMITS)) as store:
        began = time.process_time()
        took = asyncio.run(_timed(store, load))
        return took, time.process_time() - began


async def _timed(store: Store, load: Load) -> list[float]:
    took: list[float] = []
    owner = f"key-{load.number}"
    known = [f"known-{number}" for number in range(_NUM_READ)]
    if load.reads:
        await asyncio.gather(*(store.save(_record(id_, owner)) for id_ in known))
    end = time.monotonic() + load.seconds

    async def task(number: int) -> None:
        chance = random.Random(number)
        count = 0
        while (began := time.monotonic()) < end:
            count += 1
            if load.reads:
                await store.load("response", owner, chance.choice(known))
            else:
                await store.save(_record(f"{began}-{number}-{count}", owner))
            took.append(time.monotonic() - began)

    works: list[Callable[[int], Awaitable[None]]] = [task] * load.num_tasks
    await asyncio.gather(*(work(number) for number, work in enumerate(works)))
    return took


def _measured(place: Place, num_servers: int, num_tasks: int, seconds: float, *, reads: bool) -> Rate:
    loads = [Load(place.where, number, num_tasks, seconds, reads) for number in range(num_servers)]
    before = _spent(place.process)
    with ProcessPoolExecutor(num_servers) as servers:
        outcomes = list(servers.map(_work, loads))
    took = sorted(each for times, _ in outcomes for each in times)
    processor = sum(own for _, own in outcomes) + _spent(place.process) - before
    return Rate(len(took) / seconds, took[int(len(took) * 0.99)] * 1000, processor / len(took) * 1000)


def _spent(process: int | None) -> float:
    """The processor's seconds of a process and of its children that have ended, as those of connections have."""
    if process is None:
        return 0.0
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _places() -> Iterator[dict[str, Place]]:
    programs = find_programs()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        places = {"SQLite": Place(folder / "store.db")}
        if programs is not None:
            made = stack.enter_context(cluster(programs, is_durable=True))
            places["PostgreSQL"] = Place(made.url, made.process.pid)
        yield places


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    seconds: float = parser.parse_args().seconds
    of_each = "99 % within | processor"
    print(f"| store | servers | at once | saved/s | {of_each} | read/s | {of_each} |\n|{'---|' * 9}")
    with _places() as places:
        for num_servers, num_tasks in _CASES:
            for name, place in places.items():  # in turns, so that a busy machine is busy for both
                saved = _measured(place, num_servers, num_tasks, seconds, reads=False)
                read = _measured(place, num_servers, num_tasks, seconds, reads=True)
                rates = " | ".join(
                    f"{each.per_second:,.0f} | {each.worst_ms:.0f} ms | {each.processor_ms:.2f} ms"
                    for each in (saved, read)
                )
                print(f"| {name} | {num_servers} | {num_servers * num_tasks} | {rates} |", flush=True)


if __name__ == "__main__":
    main()
