"""Of two servers on one file one may be killed: the other says of its responses that they failed."""

import json
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from proxy_inference_engine.store import StoreLimits
from proxy_inference_engine.store.objects import Objects
from proxy_inference_engine.store.sqlite import database
from proxy_inference_engine.store.sqlite.database import connect
from tests.clock import Clock
from tests.polling import HANG_S, until
from tests.unit.store.stores import Where, opened, record

# Saves a response that is not finished, says so, and waits to be killed.
OTHER = """
import asyncio, sys
from pathlib import Path
from proxy_inference_engine.store import Record, Store
store = Store.open(sys.argv[1] if "://" in sys.argv[1] else Path(sys.argv[1]))
body = {"id": "x", "status": "queued", "output": [], "error": None}
asyncio.run(store.save(Record("response", "x", "anna", 100, body, {}, "queued", turn=[])))
print("saved", flush=True)
sys.stdin.read()
"""


def killed_server(where: Where) -> None:
    """What another server leaves behind that was killed while it made a response."""
    command = [sys.executable, "-c", OTHER, str(where)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "saved\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait(HANG_S) == -signal.SIGKILL


async def test_a_response_of_a_killed_server_is_failed_for_whoever_asks(tmp_path: Path) -> None:
    """The other server showed it as queued for ever."""
    path = tmp_path / "store.db"
    async with opened(path, clock=time.time) as store:
        await store.save(record("ours", status="in_progress"))
        killed_server(path)
        found = await store.load("response", "anna", "x")
        assert found is not None and found.status == found.body["status"] == "failed"
        assert found.body["error"]["code"] == "server_error"
        ours = await store.load("response", "anna", "ours")
        assert ours is not None and ours.status == "in_progress", "this server lives"
        assert len(list(tmp_path.glob("*.run-*"))) == 1, "what the dead one left is cleared away"


async def test_what_comes_next_can_build_on_a_response_of_a_killed_server(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path, clock=time.time) as store:
        killed_server(path)
        past = await store.past("response", "anna", "x")
        assert past is not None and past.status == "failed"


async def test_a_response_of_a_living_server_is_left_alone(where: Where) -> None:
    async with opened(where) as one, opened(where) as other:
        await other.save(record("x", status="queued", output=[]))
        found = await one.load("response", "anna", "x")
        assert found is not None and found.status == "queued"


async def test_nobody_needs_to_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look round, between writes, finds them too."""
    monkeypatch.setattr(database, "TIDY_SECONDS", 0.0)
    path = tmp_path / "store.db"
    async with opened(path) as store:
        with closing(connect(path)) as connection:
            crashed = record("x", status="queued", output=[])
            Objects(StoreLimits(), Clock()).put(connection, crashed, "dead")
        await store.save(record("y"))  # tidying comes after a write, or a moment later where the log is being emptied
        with closing(connect(path)) as connection:
            select = "SELECT status, body FROM objects WHERE id = 'x'"
            await until(lambda: connection.execute(select).fetchone()[0] == "failed")
            assert json.loads(connection.execute(select).fetchone()[1])["status"] == "failed"


async def test_a_damaged_response_of_a_killed_server_does_not_keep_the_next_from_starting(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path, clock=time.time):
        killed_server(path)
        with closing(connect(path)) as connection:
            connection.execute("UPDATE objects SET body = ?", (b'{"id": "x", ',))
    async with opened(path, clock=time.time) as store:
        await store.save(record("y"))
        assert await store.delete("response", "anna", "x")
