"""Clients that leave at any moment, by a plain end or a reset, from every API that computes something.

Afterwards nothing runs, nobody is connected, no thread or descriptor is left, and an answer is what it was before.
"""

import json
import os
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import HELLO, MODEL, Running, running
from tests.api.test_leaving import leave, send_request
from tests.soak.outcome import Outcome, scaled

_NUM_CLIENTS, _NUM_ROUNDS, _NUM_THREADS = 10_000, 10, 16
_MORE = 40  # threads or descriptors that pools may have taken since; a leak would be hundreds
_LONG: dict[str, Any] = {"model": MODEL, "ignore_eos": True}
_ASKS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/chat/completions", {**_LONG, "messages": HELLO, "max_tokens": 300, "n": 2}),
    ("/v1/completions", {**_LONG, "prompt": ["Once", "upon"], "max_tokens": 300}),
    ("/v1/responses", {**_LONG, "input": "Hello", "max_output_tokens": 300}),
    ("/v1/messages", {"model": MODEL, "messages": HELLO, "max_tokens": 300}),
    ("/api/chat", {"model": MODEL, "messages": HELLO, "options": {"num_predict": 300}}),
    ("/completion", {**_LONG, "prompt": "Once upon", "n_predict": 300}),
    ("/v1/embeddings", {"model": MODEL, "input": ["x" * 2000] * 8}),
)
_GOLDEN = {**_LONG, "messages": HELLO, "max_tokens": 40, "seed": 7}


def run(scale: float) -> Outcome:
    num_clients, wrong = scaled(_NUM_CLIENTS, scale), list[str]()
    with running(FakeRunner(step_seconds=lambda _: 0.001)) as live:
        golden, held = _golden(live), list[tuple[int, int]]()
        for number in range(_NUM_ROUNDS):
            numbers = range(number * num_clients // _NUM_ROUNDS, (number + 1) * num_clients // _NUM_ROUNDS)
            with ThreadPoolExecutor(_NUM_THREADS) as pool:
                list(pool.map(lambda each: _visit(live, each), numbers))
            live.wait_alone()
            live.wait_idle()
            held.append((threading.active_count(), len(os.listdir("/proc/self/fd"))))
        wrong += [f"held {held[0]} after the first round, {held[-1]} after the last"] * _has_grown(held)
        wrong += ["the answer is another one now"] * (_golden(live) != golden)
    return Outcome(num_clients, wrong)


def _visit(live: Running, number: int) -> None:
    chance = random.Random(number)
    path, body = chance.choice(_ASKS)
    if path != "/v1/embeddings":
        body = {**body, "stream": chance.random() < 0.5}
    with suppress(ConnectionError), send_request(live, path, body) as sock:
        match chance.randrange(3):
            case 0:
                time.sleep(chance.uniform(0, 0.05))
            case 1:
                sock.recv(chance.choice((1, 100, 5000)))
        leave(sock, resets=chance.random() < 0.5)


def _has_grown(held: list[tuple[int, int]]) -> bool:
    return any(last > first + _MORE for first, last in zip(held[0], held[-1], strict=True))


def _golden(live: Running) -> object:
    with socket.create_connection(live.address), live.http() as http:
        return json.dumps(http.post("/v1/chat/completions", json=_GOLDEN).json()["choices"])
