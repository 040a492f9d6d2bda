"""Servers that are killed under mixed load: what they acknowledged is there and unchanged when another one starts.

One file for all: each server begins with what those before it left.
"""

import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.api.running import HELLO, MODEL
from tests.polling import HANG_S, wait_until
from tests.soak.outcome import Outcome, scaled

_NUM_KILLS, _NUM_CLIENTS = 100, 6
_NUM_LOOKED_AT = 200
_ROOT = Path(__file__).parents[2]
_SERVE = """
import itertools, socket, sys
from dataclasses import replace
from pathlib import Path
from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.app import store_limits
from proxy_inference_engine.server.process import open_sealer, open_store, serve
from proxy_inference_engine.store import Store
folder, url, num_fast = sys.argv[1:]
config = Config(data_dir=Path(folder), store_url=url or None, drain_seconds=0.2)
passes = itertools.count()
runner = FakeRunner(step_seconds=lambda _: 0.001 if next(passes) < float(num_fast) else 1.0)
worker = Worker(StepEngine(runner, max_cache_bytes=1 << 20))
worker.start()
with socket.socket() as sock:
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    print("http://{}:{}".format(*sock.getsockname()), flush=True)
    limits = replace(store_limits(config), run_seconds=5.0)
    store = Store.open(url, limits=limits) if url else open_store(config)
    serve([ServedModel.of(worker, config)], config, sock, store=store, sealer=open_sealer(config, store))
"""
_RESPONSE = {"model": MODEL, "input": "Hello", "max_output_tokens": 30}
_CHAT = {"model": MODEL, "messages": HELLO, "max_tokens": 20, "store": True}

Kept = dict[str, Any]  # path → what was acknowledged


def run(scale: float) -> Outcome:
    num_kills, wrong, kept, latest = scaled(_NUM_KILLS, scale), list[str](), Kept(), Kept()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(num_kills + 1):
            process, url = start_server(folder)
            try:
                looked_at = latest | some(kept, number) if number < num_kills else kept
                wrong += [f"after {number} kills: {reason}" for reason in lost(url, looked_at)]
                if number < num_kills:
                    latest = _loaded(process, url, number)
                    kept |= latest
            finally:
                process.kill()
                process.communicate()
    if not kept:
        wrong.append("nothing was acknowledged before any kill")
    return Outcome(num_kills, wrong)


def start_server(
    folder: str, store_url: str = "", *, num_fast: float = math.inf
) -> tuple["subprocess.Popen[str]", str]:
    """`num_fast`: after so many passes each takes a second."""
    command = [sys.executable, "-c", _SERVE, folder, store_url, str(num_fast)]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT / "src")}
    with open(Path(folder) / "errors", "a+") as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        errors.seek(0)
        assert url, f"the server did not start: {errors.read()[-500:]}"
    return process, url


def some(kept: Kept, number: int) -> Kept:
    """Of what was there before the last kill; all of it is looked at in the end."""
    paths = random.Random(number).sample(sorted(kept), min(len(kept), _NUM_LOOKED_AT))
    return {path: kept[path] for path in paths}


def lost(url: str, kept: Kept) -> list[str]:
    reasons = []
    with httpx.Client(base_url=url, timeout=HANG_S) as http:
        for path, expected in kept.items():
            found = http.get(path)
            if expected is None and found.status_code != 404:
                reasons.append(f"{path} was deleted and is there")
            elif expected is not None and (found.status_code != 200 or found.json() != expected):
                reasons.append(f"{path} is not what was acknowledged: {found.status_code} {found.text[:200]}")
    return reasons


def _loaded(process: "subprocess.Popen[str]", url: str, number: int) -> Kept:
    """What several clients were told before it was killed."""
    kept, chance = Kept(), random.Random(number)
    clients = [threading.Thread(target=use, args=(url, f"{number}-{each}", kept)) for each in range(_NUM_CLIENTS)]
    for client in clients:
        client.start()
    if number % 2 == 0:  # the others at any time; on a busy machine nobody might have been told anything by then
        wait_until(lambda: kept)
    time.sleep(chance.uniform(0.0, 1.5))
    process.send_signal(signal.SIGKILL)
    for client in clients:
        client.join(HANG_S)
    return kept


def use(url: str, seed: str, kept: Kept, has_ended: Callable[[], bool] = lambda: False) -> None:
    """Until there is no server, or no need. A deletion without an answer may have happened or not: it is not kept."""
    chance = random.Random(seed)
    works: tuple[Callable[[httpx.Client, random.Random, Kept], None], ...] = (_respond, _respond, _chat, _converse)
    try:
        with httpx.Client(base_url=url, timeout=HANG_S) as http:
            while not has_ended():
                chance.choice(works)(http, chance, kept)
    except (httpx.TransportError, json.JSONDecodeError):
        return


def _respond(http: httpx.Client, chance: random.Random, kept: Kept) -> None:
    made = http.post("/v1/responses", json=_RESPONSE).json()
    path = f"/v1/responses/{made['id']}"
    if chance.random() < 0.3:
        if http.delete(path).status_code == 200:
            kept[path] = None
    else:
        kept[path] = made


def _chat(http: httpx.Client, _chance: random.Random, kept: Kept) -> None:
    made = http.post("/v1/chat/completions", json=_CHAT).json()
    path = f"/v1/chat/completions/{made['id']}"
    kept[path] = http.get(path).json()


def _converse(http: httpx.Client, chance: random.Random, kept: Kept) -> None:
    items = [{"role": "user", "content": f"{chance.random()}"}]
    made = http.post("/v1/conversations", json={"items": items, "metadata": {"a": str(chance.random())}}).json()
    kept[f"/v1/conversations/{made['id']}"] = made
    listed = http.get(f"/v1/conversations/{made['id']}/items").json()
    kept[f"/v1/conversations/{made['id']}/items"] = listed
