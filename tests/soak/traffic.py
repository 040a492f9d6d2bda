"""Mixed traffic for a quarter of an hour: every kind of request, some clients that leave, and memory that stays.

Over the bundled model, or the fake one below a tenth of the campaign: there its weights would take all the time.
"""

import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from tests.golden.bodies import BODIES
from tests.polling import HANG_S
from tests.soak.outcome import Outcome
from tests.soak.server_kills import start_server

_SECONDS, _NUM_CLIENTS, _LEAST_REAL = 900.0, 4, 0.1
_ROOT = Path(__file__).parents[2]
_PATIENCE_S = 300.0  # beside other work its threads wait for each other, and a request may take minutes
_GROWTH = 1.25  # of memory, from the first third to the end
_LEAST_WATCHED_S = 60.0  # before, it still grows as it must
_SKIPPED = {"rerank"}  # another model's
_SETTINGS = ("--port", "0", "--cache-memory", "64MiB", "--context", "4096", "--log-level", "error")


def run(scale: float) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        process, url = _start_real(folder) if scale >= _LEAST_REAL else start_server(folder)
        try:
            return _Traffic(url, process.pid, scale * _SECONDS).run()
        finally:
            process.kill()
            process.communicate()


def _start_real(folder: str) -> tuple["subprocess.Popen[str]", str]:
    environment = {**os.environ, "PYTHONPATH": str(_ROOT / "src"), "PIE_DATA_DIR": folder, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "proxy_inference_engine", "serve", *_SETTINGS]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(r"http://[\d.]+:\d+", line)
        if found is not None:
            threading.Thread(target=process.stdout.read, daemon=True).start()  # a pipe that nobody reads fills up
            return process, found[0]
    raise AssertionError("the server did not start")


class _Traffic:
    def __init__(self, url: str, pid: int, seconds: float) -> None:
        self._url = url
        self._memory = Path(f"/proc/{pid}/statm")
        self._seconds = seconds
        self._lock = threading.Lock()
        self._num = 0
        self._wrong: list[str] = []

    def run(self) -> Outcome:
        ends_at, third = time.monotonic() + self._seconds, self._seconds / 3
        clients = [threading.Thread(target=self._ask_on, args=(seed, ends_at)) for seed in range(_NUM_CLIENTS)]
        for client in clients:
            client.start()
        clients[0].join(third)
        before = self._num_bytes()
        for client in clients:
            client.join(self._seconds + _PATIENCE_S)
        after = self._num_bytes()
        with httpx.Client(base_url=self._url, timeout=HANG_S) as http:
            if http.get("/ready").status_code != 200:
                self._wrong.append("it is not ready in the end")
        if self._seconds >= _LEAST_WATCHED_S and after > _GROWTH * before:
            self._wrong.append(f"memory went from {before >> 20} to {after >> 20} MiB")
        return Outcome(self._num, self._wrong)

    def _num_bytes(self) -> int:
        return int(self._memory.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def _ask_on(self, seed: int, ends_at: float) -> None:
        chance, names = random.Random(seed), [name for name in BODIES if name not in _SKIPPED]
        with httpx.Client(base_url=self._url, timeout=_PATIENCE_S) as http:
            while time.monotonic() < ends_at:
                name = chance.choice(names)
                reason = self._asked(http, chance, *BODIES[name])
                with self._lock:
                    self._num += 1
                    self._wrong += [f"{name}: {reason}"] * (reason is not None)

    def _asked(self, http: httpx.Client, chance: random.Random, path: str, body: dict[str, Any]) -> str | None:
        body = {**body, "model": "default"} if "model" in body else body
        try:
            if path != "/v1/conversations" and chance.random() < 0.1:
                with http.stream("POST", path, json=body) as response:
                    next(response.iter_raw(), b"")
                    return None  # and leaves
            answer = http.post(path, json=body)
        except httpx.TransportError as error:
            return f"{type(error).__name__}: {error}"
        return None if answer.status_code in (200, 400) else f"{answer.status_code}: {answer.text[:200]}"
