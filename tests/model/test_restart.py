"""An engine on llama.cpp that dies or hangs: afterwards it answers as before, over the same weights or new ones."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.scheduler import Scheduler
from proxy_inference_engine.engine.sequence import Grant
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.models.load import load_engine
from proxy_inference_engine.runners.base import Logits, Row
from tests.model.gguf_files import write_llama
from tests.polling import until
from tests.requests import make_request
from tests.unit.engine.threads import everything, failure, token_ids


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_llama(tmp_path / "m.gguf")


def load(path: Path) -> Worker:
    config = Config(model=str(path), threads=1, cache_dir=path.parent, kv_memory=1 << 22, cache_memory=1 << 20)
    return load_engine(config)


async def ask(worker: Worker) -> list[int]:
    return token_ids(await everything(worker.submit(make_request(range(10, 60), id="ask", max_tokens=20))))


async def test_after_a_death_the_same_weights_answer_as_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = load(path)
    try:
        before, schedule, runner = await ask(worker), Scheduler.schedule, worker._engine.runner

        def die(self: Scheduler) -> list[Grant]:
            if self.running:  # in the middle of an answer: its slot holds something
                raise RuntimeError("injected fault")
            return schedule(self)

        monkeypatch.setattr(Scheduler, "schedule", die)
        assert failure(await everything(worker.submit(make_request(range(10, 60), id="dies")))) == "engine_failure"
        monkeypatch.undo()
        await until(lambda: worker.is_ready)
        assert worker._engine.cache.num_tokens == 0
        assert await ask(worker) == before and worker._engine.runner is runner
        worker._engine.check()
    finally:
        worker.stop()


async def test_when_a_pass_hangs_other_weights_answer_as_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_in, may_go = threading.Event(), threading.Event()
    worker = load(path)
    try:
        before, runner = await ask(worker), worker._engine.runner
        supervisor, forward = worker._supervisor, runner.forward
        old = supervisor._thread

        def hang(rows: Sequence[Row]) -> list[Logits]:
            is_in.set()
            assert may_go.wait(60)
            return forward(rows)

        monkeypatch.setattr(runner, "forward", hang)
        stream = worker.submit(make_request(range(10, 60), id="hangs"))
        await until(is_in.is_set)
        with supervisor._lock:
            supervisor._give_up()
        assert failure(await everything(stream)) == "engine_stuck"
        await until(lambda: worker.is_ready)
        assert await ask(worker) == before and worker._engine.runner is not runner
        may_go.set()
        await asyncio.to_thread(old.join, 20)
        assert not old.is_alive() and await ask(worker) == before
    finally:
        may_go.set()
        worker.stop()
