"""Two servers on one PostgreSQL, one of them killed again and again under load: the other has all they acknowledged.

It goes on answering meanwhile, and what ran in the background at the dead one is failed, not for ever unfinished.
"""

import random
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

import httpx

from scripts.postgres import cluster, find_programs
from tests.polling import HANG_S, wait_until
from tests.soak.outcome import Outcome, scaled
from tests.soak.server_kills import Kept, lost, some, start_server, use

_NUM_KILLS, _NUM_CLIENTS = 50, 3  # clients of each server
_LONG = {"model": "fake", "input": "Hello", "max_output_tokens": 4000, "background": True, "ignore_eos": True}
_UNFINISHED = ("queued", "in_progress")


class Server(NamedTuple):
    process: "subprocess.Popen[str]"
    url: str


def run(scale: float) -> Outcome:
    programs = find_programs()
    if programs is None:
        return Outcome(0, ["there is no PostgreSQL here: install the package postgresql"])
    with cluster(programs) as made, tempfile.TemporaryDirectory() as folder:
        servers = [Server(*start_server(folder, made.url)) for _ in range(2)]
        try:
            return _killed(servers, folder, made.url, scaled(_NUM_KILLS, scale))
        finally:
            for server in servers:
                server.process.kill()
                server.process.communicate()


def _killed(servers: list[Server], folder: str, store_url: str, num_kills: int) -> Outcome:
    wrong, kept, running = list[str](), Kept(), list[str]()
    for number in range(num_kills):
        victim, survivor = servers[number % 2], servers[1 - number % 2]
        running += _begin_long(victim.url)
        latest = _loaded(victim, survivor, number, wrong)
        wrong += [f"after {number + 1} kills: {reason}" for reason in lost(survivor.url, latest | some(kept, number))]
        kept |= latest
        victim.process.communicate()
        servers[number % 2] = Server(*start_server(folder, store_url))
    for server in servers:
        wrong += [f"in the end: {reason}" for reason in lost(server.url, kept)]
        wrong += _never_over(server.url, running)
    if not kept:
        wrong.append("nothing was acknowledged before any kill")
    return Outcome(num_kills, wrong)


def _begin_long(url: str) -> list[str]:
    """Responses in the background that outlast any load."""
    with httpx.Client(base_url=url, timeout=HANG_S) as http:
        return [f"/v1/responses/{http.post('/v1/responses', json=_LONG).json()['id']}"]


def _loaded(victim: Server, survivor: Server, number: int, wrong: list[str]) -> Kept:
    """What clients of both were told until one was killed, and a while longer by the other."""
    kept, has_ended, chance = Kept(), threading.Event(), random.Random(number)

    def work(server: Server, seed: str) -> None:
        try:
            use(server.url, seed, kept, has_ended.is_set)
        except LookupError as error:
            wrong.append(f"while {number} were killed: an answer without {error}")
        if server is survivor and not has_ended.is_set():
            wrong.append(f"while {number} were killed: the other server ended too")

    clients = [
        threading.Thread(target=work, args=(server, f"{number}-{place}-{each}"))
        for place, server in enumerate((victim, survivor))
        for each in range(_NUM_CLIENTS)
    ]
    for client in clients:
        client.start()
    if number % 2 == 0:  # the others at any time; on a busy machine nobody might have been told anything by then
        wait_until(lambda: kept)
    time.sleep(chance.uniform(0.1, 1.0))
    victim.process.send_signal(signal.SIGKILL)
    time.sleep(chance.uniform(0.1, 0.5))
    has_ended.set()
    for client in clients:
        client.join(HANG_S)
    return kept


def _never_over(url: str, paths: Sequence[str]) -> list[str]:
    """Those that are still unfinished long after their server died."""
    deadline = time.monotonic() + HANG_S
    with httpx.Client(base_url=url, timeout=HANG_S) as http:
        left = list(paths)
        while left and time.monotonic() < deadline:
            left = [path for path in left if http.get(path).json().get("status", _UNFINISHED[0]) in _UNFINISHED]
            time.sleep(0.1)
    return [f"{path} is unfinished for ever" for path in left]
