"""A served model that is closed leaves nothing behind: no thread, no process, no file."""

import asyncio
import os
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.errors import Unavailable
from proxy_inference_engine.models.load.engine import use_disk
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.state_machine.demand import Demand, JsonSchema
from tests.polling import HANG_S, until
from tests.unit.engine.driven import ENDLESS
from tests.unit.engine.threads import Gate
from tests.unit.served.test_model import chat

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="all is seen in /proc")
BOUND = Demand(output=JsonSchema({"type": "string", "pattern": "^a{3}$"}))  # one for the sandbox


def descendants() -> set[int]:
    """The processes that this one started and that are there."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ends just now
            found |= set(map(int, (task / "children").read_text().split()))
    return found


class Held(NamedTuple):
    threads: set[threading.Thread]
    processes: set[int]
    num_files: int

    def has_grown(self, before: "Held") -> bool:
        """What earlier tests left behind may go meanwhile; nothing may come."""
        files = self.num_files > before.num_files
        return bool(self.threads - before.threads or self.processes - before.processes or files)


def held() -> Held:
    return Held(set(threading.enumerate()), descendants(), len(os.listdir("/proc/self/fd")))


def served(folder: Path, runner: FakeRunner) -> ServedModel:
    config = Config(disk_cache=1 << 20, cache_dir=folder)
    engine = StepEngine(runner, max_cache_bytes=1 << 20)
    use_disk(engine, config)
    worker = Worker(engine)
    worker.start()
    return ServedModel.of(worker, config)


async def read(model: ServedModel, id_: str = "chat", **fields: object) -> int:
    """How many steps an answer had."""
    stream = await model.answer(replace(chat("Hello", **fields), id=id_))
    async with asyncio.timeout(HANG_S):
        return len([step async for step in stream.steps()])


async def test_what_it_held_is_free(tmp_path: Path) -> None:
    """Threads of the engine, of its watcher, of the disk and of grammars; the sandbox's process; descriptors."""
    before = held()
    for number in range(3):
        model = served(tmp_path, FakeRunner(end_bias=ENDLESS))
        assert await read(model, demand=BOUND)
        assert len(held().processes - before.processes) == 1, "the sandbox's process"
        model.close()
        model.threads._pool.shutdown()  # everybody's: the server has one for all models
        assert not held().has_grown(before), f"after closing {number + 1}"
        assert not model.answerer.is_ready


async def test_what_runs_ends_with_an_error(tmp_path: Path) -> None:
    before, gate = held(), Gate()
    model = served(tmp_path, gate.runner())
    readers = [asyncio.ensure_future(read(model, str(number))) for number in range(3)]
    await until(gate.is_entered.is_set)
    closing = asyncio.ensure_future(asyncio.to_thread(model.close))
    await until(lambda: not model.answerer.is_ready)
    gate.open()
    await closing
    ends = await asyncio.gather(*readers, return_exceptions=True)
    assert [end.code for end in ends if isinstance(end, Unavailable)] == ["shutting_down"] * 3
    assert not held()._replace(threads=set()).has_grown(before)


async def test_closing_again_is_harmless_and_nothing_works_any_more(tmp_path: Path) -> None:
    model = served(tmp_path, FakeRunner(end_bias=ENDLESS))
    model.close()
    model.close()
    with pytest.raises(Unavailable):
        await read(model)
