"""Batches that are cancelled, run out of time, are cut off and go on; and whose they are."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import NotFoundError, OpenAI

from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.store import FileLimits, Store, StoreLimits
from tests.api.batch_files import begin, ended, jsonl, line, lines_of
from tests.api.running import HELLO, MODEL, Running, running
from tests.polling import HANG_S, wait_until
from tests.soak.server_kills import start_server

CHAT = "/v1/chat/completions"
KEYS = (ApiKey("anna", "key-of-anna"), ApiKey("ben", "key-of-ben"))


class Brake:
    """Lets a runner compute so many passes, and then no more until it is let go."""

    def __init__(self, num_free: int = 0) -> None:
        self.num_passes = 0
        self._num_free = num_free
        self._is_off = False
        self._changed = threading.Condition()

    def __call__(self, _rows: Sequence[Row]) -> None:
        with self._changed:
            self.num_passes += 1
            assert self._changed.wait_for(lambda: self._is_off or self.num_passes <= self._num_free, HANG_S)

    def let_go(self) -> None:
        with self._changed:
            self._is_off = True
            self._changed.notify_all()

    def let(self, num_passes: int) -> None:
        """So many more."""
        with self._changed:
            self._num_free = self.num_passes + num_passes
            self._changed.notify_all()

    def hold(self) -> None:
        """From the next pass on."""
        with self._changed:
            self._num_free, self._is_off = self.num_passes, False


@contextmanager
def braked(
    num_free: int = 0, config: Config | None = None, store: Store | None = None
) -> Iterator[tuple[Running, Brake]]:
    brake = Brake(num_free)
    with running(FakeRunner(lanes=(Lane(4, 512),), on_forward=brake), config, store=store) as live:
        try:
            yield live, brake
        finally:
            brake.let_go()


def many(num_lines: int, **fields: Any) -> bytes:
    return jsonl(*(line(f"l{number}", **fields) for number in range(num_lines)))


def test_a_batch_is_cancelled_and_what_was_answered_stays() -> None:
    with braked(60) as (live, brake), live.openai() as client:
        batch = begin(client, many(200))
        wait_until(lambda: brake.num_passes > 60)
        assert client.batches.cancel(batch.id).status == "cancelling"
        brake.let_go()
        batch = ended(client, batch)
        assert batch.status == "cancelled" and batch.cancelled_at is not None and batch.cancelling_at is not None
        assert batch.request_counts is not None and 0 < batch.request_counts.completed < 200
        assert len(lines_of(client, batch.output_file_id)) == batch.request_counts.completed
        live.wait_idle()


def test_a_batch_that_waits_for_another_one_is_cancelled_at_once() -> None:
    with braked() as (live, brake), live.openai() as client:
        first, second = begin(client, many(3)), begin(client, many(3))
        client.batches.cancel(second.id)
        assert ended(client, second).status == "cancelled"
        brake.let_go()
        assert ended(client, first).status == "completed"


def test_what_was_not_answered_in_time_is_told_line_by_line() -> None:
    with braked(20) as (live, _), live.openai() as client:
        batch = ended(client, begin(client, many(40), completion_window="1s"))
        assert batch.status == "expired" and batch.expired_at is not None and batch.request_counts is not None
        answered, missed = lines_of(client, batch.output_file_id), lines_of(client, batch.error_file_id)
        assert answered.keys() | missed.keys() == {f"l{number}" for number in range(40)}
        assert len(missed) == batch.request_counts.failed > 0
        assert {each["error"]["code"] for each in missed.values()} == {"batch_expired"}


def test_a_killed_server_goes_on_where_it_was(tmp_path: Path) -> None:
    num_lines = 60
    process, url = start_server(str(tmp_path), num_fast=100)  # of the 225 or more that it takes
    try:
        client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        batch = begin(client, many(num_lines, max_tokens=30, ignore_eos=True))
        partial = tmp_path / "files" / "local" / f"{batch.id}.output"
        wait_until(lambda: partial.exists() and partial.read_bytes().count(b"\n") >= 5)
    finally:
        process.kill()
        process.communicate()
    kept = partial.read_bytes()
    assert 5 <= kept.count(b"\n") < num_lines, "it was killed in the middle"
    kept = kept[: kept.rindex(b"\n") + 1]
    with partial.open("ab") as file:
        file.write(b'{"custom_id": "l5", "resp')  # a line that the kill cut off
    process, url = start_server(str(tmp_path))
    try:
        client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        done = ended(client, batch)
        assert done.status == "completed" and done.output_file_id is not None and done.request_counts is not None
        assert done.request_counts.completed == num_lines
        assert len(lines_of(client, done.output_file_id)) == num_lines, "no line was lost, and none came twice"
        assert client.files.content(done.output_file_id).read().startswith(kept), "what was there is as it was"
    finally:
        process.kill()
        process.communicate()
    assert not partial.exists()


def test_a_server_that_ends_leaves_the_rest_to_the_next(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    with braked(60, store=store) as (live, brake), live.openai() as client:
        batch = begin(client, many(200))
        wait_until(lambda: brake.num_passes > 60)
        live.server.should_exit = True
        brake.let_go()
        wait_until(lambda: not live.server.server_state.connections)
    store.close()
    store = Store.open(tmp_path / "store.db")
    with running(store=store) as live, live.openai() as client:
        batch = ended(client, batch)
        assert batch.status == "completed" and len(lines_of(client, batch.output_file_id)) == 200
    store.close()


def test_other_keys_see_neither_files_nor_batches() -> None:
    with running(config=Config(api_keys=KEYS, drain_seconds=0.2)) as live:
        anna, ben = live.openai(key="key-of-anna"), live.openai(key="key-of-ben")
        batch = ended(anna, begin(anna, many(1)))
        assert batch.output_file_id is not None
        assert not ben.files.list().data and not ben.batches.list().data
        for file_id in (batch.input_file_id, batch.output_file_id):
            for call in (ben.files.retrieve, ben.files.content, ben.files.delete):
                with pytest.raises(NotFoundError):
                    call(file_id)
        with pytest.raises(NotFoundError):
            ben.batches.create(input_file_id=batch.input_file_id, endpoint="/v1/responses", completion_window="24h")
        for do in (ben.batches.retrieve, ben.batches.cancel):
            with pytest.raises(NotFoundError):
                do(batch.id)
        assert anna.files.retrieve(batch.input_file_id).id == batch.input_file_id
        anna.close()
        ben.close()


def test_whoever_comes_goes_first() -> None:
    """A batch has all the slots it may have, and none of its lines ends within the passes that there are."""
    with braked(30) as (live, brake), live.openai() as client, live.http() as http, ThreadPoolExecutor() as pool:
        batch = begin(client, many(6, max_tokens=400, ignore_eos=True))
        wait_until(lambda: brake.num_passes > 30)
        asked = pool.submit(http.post, CHAT, json={"model": MODEL, "messages": HELLO, "max_tokens": 3})
        # Only then: the batch must not use up the passes while the request is on its way.
        wait_until(lambda: CHAT in [each["route"] for each in http.get("/admin/requests").json()["data"]])
        brake.let(100)
        assert asked.result(HANG_S).json()["choices"][0]["finish_reason"] == "length"
        brake.let_go()
        assert ended(client, batch).status == "completed"


def test_a_batch_stops_where_its_key_has_no_room_left(tmp_path: Path) -> None:
    data = many(30)
    limits = StoreLimits(files=FileLimits(of_owner=len(data) + 4000))
    store = Store.open(tmp_path / "store.db", limits=limits)
    with running(store=store) as live, live.openai() as client:
        batch = ended(client, begin(client, data))
        assert batch.status == "failed" and batch.errors is not None and batch.errors.data is not None
        assert batch.errors.data[0].code == "storage_full"
        assert 0 < len(lines_of(client, batch.output_file_id)) < 30, "what was answered is there"
    store.close()


def test_a_batch_whose_input_is_deleted_fails() -> None:
    with braked() as (live, brake), live.openai() as client:
        first, second = begin(client, many(1)), begin(client, many(1))
        client.files.delete(second.input_file_id)
        brake.let_go()
        batch = ended(client, second)
        assert batch.status == "failed" and batch.errors is not None and batch.errors.data is not None
        assert batch.errors.data[0].code == "input_file_deleted" and ended(client, first).status == "completed"


def test_lines_of_a_batch_are_seen_and_counted_like_requests() -> None:
    with running() as live, live.openai() as client, live.http() as http:
        ended(client, begin(client, many(3)))
        metrics = http.get("/metrics").text
        assert 'pie_http_requests_total{route="batch",status="200"} 3.0' in metrics
        (usage,) = http.get("/admin/usage").json()["data"]
        assert usage["key"] == "local" and usage["requests"] == 3 and usage["completion_tokens"] > 0
