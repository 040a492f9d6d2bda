"""Who waits, where, for how long, and who may go before others."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest

from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.http.sse import Patience
from tests.api.running import HELLO, MODEL, Running, listening, running
from tests.api.test_batch_life import Brake, braked
from tests.polling import HANG_S, wait_until

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 4}
NUM_ENDS = 32  # answers after which anything is guessed, and more
KEYS = (ApiKey("anna", "k-a"), ApiKey("ben", "k-b"), ApiKey("root", "k-r", is_admin=True))


def test_a_stream_that_waits_is_told_its_place() -> None:
    """In its head, as it was when it came, and in comments while it waits."""
    brake = Brake()
    patience = Patience(first_ping_s=0.02, next_ping_s=0.02)
    runner = FakeRunner(lanes=(Lane(1, 512),), on_forward=brake)
    with running(runner, patience=patience) as live, live.http() as http, ThreadPoolExecutor(1) as pool:
        first = pool.submit(http.post, CHAT, json=BODY)
        wait_until(lambda: brake.num_passes)
        with http.stream("POST", CHAT, json={**BODY, "stream": True}) as waiting:
            assert waiting.headers["x-pie-queue-position"] == "1"
            lines = waiting.iter_lines()
            wait_until(lambda: next(lines) == ": queue position 1")
            brake.let_go()
            assert "data: [DONE]" in list(lines)
        assert "x-pie-queue-position" not in first.result().headers, "there was room for it"


def test_an_answer_that_waited_tells_where_it_stood() -> None:
    with braked() as (live, brake), live.http() as http, ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(http.post, CHAT, json=BODY) for _ in range(6)]
        wait_until(lambda: len(live.worker._book.unanswered) == 6)
        brake.let_go()
        places = [call.result().headers.get("x-pie-queue-position") for call in calls]
        assert sorted(place for place in places if place is not None) == ["1", "2"], "of four slots"


def test_how_long_it_takes_is_guessed_once_enough_have_ended() -> None:
    with braked() as (live, brake), live.http() as http, ThreadPoolExecutor(8) as pool:
        brake.let_go()
        for _ in range(NUM_ENDS):
            assert "x-pie-queue-seconds" not in http.post(CHAT, json=BODY).headers
        brake.hold()
        calls = [pool.submit(http.post, CHAT, json=BODY) for _ in range(6)]
        wait_until(lambda: len(live.worker._book.unanswered) == 6)
        brake.let_go()
        heads = [call.result().headers for call in calls]
        assert sorted(head.get("x-pie-queue-position", "0") for head in heads) == ["0"] * 4 + ["1", "2"]
        for head in heads:
            assert ("x-pie-queue-seconds" in head) == ("x-pie-queue-position" in head)
            assert int(head.get("x-pie-queue-seconds", "1")) >= 1


@contextmanager
def impatient(hurry: threading.Event) -> Iterator[tuple[str, Worker]]:
    """One slot, and a second to wait for it. Who has it keeps it, a minute for 400 tokens, until told to hurry."""
    runner = FakeRunner(lanes=(Lane(1, 512),), step_seconds=lambda _: 0.15, sleep=hurry.wait)
    worker = Worker(StepEngine(runner, max_cache_bytes=0, queue_timeout_s=1.0))
    worker.start()
    config = Config(drain_seconds=0.2)
    try:
        with listening([ServedModel.of(worker, config)], config) as live:
            yield live.url, worker
    finally:
        worker.stop()


@pytest.mark.parametrize("is_streamed", [False, True])
def test_who_waits_too_long_is_told_to_come_back(is_streamed: bool) -> None:
    hurry = threading.Event()
    with (
        impatient(hurry) as (url, worker),
        httpx.Client(base_url=url, timeout=2 * HANG_S) as http,
        ThreadPoolExecutor(1) as pool,
    ):
        long = pool.submit(http.post, CHAT, json={**BODY, "max_tokens": 400, "ignore_eos": True})
        wait_until(lambda: worker.stats().num_running)
        answer = http.post(CHAT, json={**BODY, "stream": is_streamed})
        if is_streamed:
            assert answer.status_code == 200 and '"code":"queue_timeout"' in answer.text and "[DONE]" in answer.text
        else:
            assert answer.status_code == 503 and answer.json()["error"]["code"] == "queue_timeout"
            assert 1 <= int(answer.headers["retry-after"]) <= 60
        hurry.set()
        assert long.result().status_code == 200


# Tiers


@pytest.fixture(scope="module")
def keyed() -> Iterator[Running]:
    with running(config=Config(api_keys=KEYS, priority_keys=("ben",), drain_seconds=0.2)) as live:
        yield live


def ask(live: Running, key: str, path: str = CHAT, **fields: Any) -> httpx.Response:
    bodies = {
        CHAT: BODY,
        "/v1/completions": {"model": MODEL, "prompt": "Hello", "max_tokens": 4},
        "/v1/responses": {"model": MODEL, "input": "Hello", "max_output_tokens": 16},
    }
    with live.http(headers={"authorization": f"Bearer {key}"}) as http:
        return http.post(path, json={**bodies[path], **fields})


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/responses"])
@pytest.mark.parametrize(
    ("key", "wanted", "used"),
    [
        ("k-a", "auto", "default"),
        ("k-a", "default", "default"),
        ("k-a", "flex", "flex"),
        ("k-a", "priority", "default"),
        ("k-b", "priority", "priority"),
        ("k-r", "priority", "priority"),
        ("k-r", "scale", "default"),
    ],
)
def test_the_answer_says_which_tier_it_had(keyed: Running, path: str, key: str, wanted: str, used: str) -> None:
    answer = ask(keyed, key, path, service_tier=wanted)
    assert answer.status_code == 200 and answer.json()["service_tier"] == used


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/responses"])
def test_nobody_jumps_the_queue_unasked(keyed: Running, path: str) -> None:
    refused = ask(keyed, "k-a", path, priority=-1)
    assert refused.status_code == 403 and refused.json()["error"]["param"] == "priority"
    assert ask(keyed, "k-a", path, priority=5).status_code == 200, "to go behind others is everybody's right"
    assert ask(keyed, "k-b", path, priority=-5).status_code == 200
    for wrong in (-1001, 1001, 1.5, "1", True):
        answer = ask(keyed, "k-r", path, priority=wrong)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "priority"


def test_flex_waits_behind_default_and_priority_goes_before() -> None:
    """By the order in which their prompts are computed."""
    brake, begun = Brake(), list[str]()

    def compute(rows: Sequence[Row]) -> None:
        brake(rows)
        prompts = [row.ids.tolist() for row in rows]
        begun.extend(tier for tier in ("flex", "default", "priority") if list(tier.encode()) in prompts)

    runner = FakeRunner(lanes=(Lane(1, 512),), on_forward=compute)
    with running(runner, max_cache_bytes=0) as live, live.http() as http, ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(http.post, CHAT, json=BODY)]
        wait_until(lambda: brake.num_passes)
        for number, tier in enumerate(("flex", "flex", "default", "default", "priority"), start=2):
            asked = {"model": MODEL, "prompt": tier, "max_tokens": 4, "service_tier": tier}
            calls.append(pool.submit(http.post, "/v1/completions", json=asked))
            wait_until(partial(lambda count: len(live.worker._book.unanswered) == count, number))
        brake.let_go()
        for call in calls:
            assert call.result().status_code == 200
    assert begun == ["priority", "default", "default", "flex", "flex"]
