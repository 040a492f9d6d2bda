"""A process that writes to a store and prints what was acknowledged, until it is killed.

python -m tests.soak.writing FILE NUMBER
"""

import asyncio
import os
import random
import signal
import sqlite3
import sys
import time
import zlib
from functools import partial
from pathlib import Path
from typing import Any

from proxy_inference_engine.store import Record, Store

OWNER = "anna"
_NUM_TASKS = 8


class Dying(sqlite3.Connection):
    num_left = 0

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "COMMIT":
            Dying.num_left -= 1
            if not Dying.num_left:
                time.sleep(0.02)  # what is acknowledged too early is printed by now
                os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(sql, parameters)


def text_of(id_: str) -> str:
    """What the object with this id holds: a reader can tell whether it is whole."""
    source = random.Random(id_)
    return source.randbytes(source.choice([10, 500, 5_000, 40_000])).hex()


def checksum(record: Record) -> int:
    return zlib.crc32(f"{record.body['text']}{record.extra['copy']}".encode())


async def _write(store: Store, name: str) -> None:
    conversation = f"conv-{name}"
    body = {"text": text_of(conversation)}
    await store.save(Record("conversation", conversation, OWNER, 1, body, {"copy": body["text"]}))
    for number in range(1_000_000):
        id_ = f"{name}-{number}"
        body = {"text": text_of(id_)}
        record = Record("response", id_, OWNER, 1, body, {"copy": body["text"]})
        await store.save(Record("response", id_, OWNER, 1, {"output": []}, {}, "in_progress"))
        await store.save(record, conversation=conversation, items=[{"id": f"item-{id_}"}])
        print("saved", id_, checksum(record), flush=True)
        if number % 4 == 3:
            await store.delete("response", OWNER, id_)
            print("deleted", id_, flush=True)


async def main(path: Path, run: str) -> None:
    store = Store.open(path)
    await asyncio.gather(*(_write(store, f"{run}-{task}") for task in range(_NUM_TASKS)))


if __name__ == "__main__":
    if sys.argv[3:]:
        Dying.num_left = int(sys.argv[3])
        sqlite3.connect = partial(sqlite3.connect, factory=Dying)  # type: ignore[assignment]  # a fault, put in on purpose
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
