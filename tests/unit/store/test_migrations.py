"""Every earlier file is brought to our version with all that is in it, once, whoever starts and whatever is killed."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from proxy_inference_engine.errors import QuotaExceeded, StartupError, StorageCorrupt
from proxy_inference_engine.store import KeyUsage, Link, Past, Store, StoreLimits
from proxy_inference_engine.store.migrations import VERSION
from proxy_inference_engine.store.sqlite.database import connect
from tests.polling import HANG_S
from tests.unit.store import earlier
from tests.unit.store.stores import Where, ids, opened, record

VERSIONS = ("1", "2", "2 with usage")
_ROOT = Path(__file__).parents[3]


def execute(where: Where, statement: str) -> tuple[object, ...] | None:
    """Past the store."""
    if isinstance(where, str):
        with psycopg.connect(where, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchone() if cursor.description else None
    with closing(connect(where)) as file:
        found = file.execute(statement).fetchone()
        return None if found is None else tuple(found)


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_an_earlier_version_wrote_is_there(tmp_path: Path, version: str) -> None:
    path = tmp_path / "store.db"
    earlier.write(path, version)
    for _ in range(2):  # the second start finds it done
        async with opened(path) as store:
            found = await store.load("response", "anna", "a")
            assert found is not None and found.body["output"] == earlier.OUTPUT
            assert found.extra == {"num_input": 1, "frames": earlier.FRAMES, "num_earlier": 1}
            turn = [earlier.EARLIER, earlier.ASKED, earlier.SAID]
            assert await store.past("response", "anna", "a") == Past(turn, Link("a"))
            begun = await store.load("response", "anna", "b")
            assert begun is not None and begun.status == "failed" and begun.extra["frames"] is None
            chat = await store.load("chat.completion", "anna", "c")
            assert chat is not None and chat.extra == {"messages": [1]}
            assert (await store.list_items("anna", "d")).items == [{"id": "e"}]
            assert await store.load("response", "anna", "f") is None
            with pytest.raises(StorageCorrupt):
                await store.load("response", "anna", "g")
            assert await ids(store, metadata={"k": "v"}) == ["a"]
            assert await store.usage() == ({"anna": KeyUsage(1, 10, 5, 3)} if version == VERSIONS[2] else {})
    assert execute(path, "SELECT version FROM schema") == (VERSION,)
    async with opened(path, StoreLimits(max_rows=7)) as store:
        await store.save(record("new"))
        with pytest.raises(QuotaExceeded):  # a, b, c, d, e, g and the new one
            await store.save(record("newer"))


async def test_a_later_version_is_refused_in_one_line_and_kept(where: Where) -> None:
    async with opened(where) as store:
        await store.save(record("x"))
    execute(where, f"UPDATE schema SET version = {VERSION + 1}")
    with pytest.raises(StartupError, match=f"version {VERSION + 1}, this program reads up to {VERSION}") as caught:
        Store.open(where)
    assert "\n" not in caught.value.message
    assert execute(where, "SELECT version FROM schema") == (VERSION + 1,)
    execute(where, f"UPDATE schema SET version = {VERSION}")
    async with opened(where) as store:
        assert await ids(store) == ["x"]


@pytest.mark.parametrize("kind", ["first", "new", "postgres"])
async def test_servers_that_start_at_once(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    where: Where = tmp_path / "store.db"
    if kind == "first":
        earlier.write(tmp_path / "store.db", "1")
    elif kind == "postgres":
        where = str(request.getfixturevalue("postgres_url"))
    with ThreadPoolExecutor(6) as threads:
        stores = list(threads.map(lambda _: Store.open(where), range(6)))
    try:
        for number, store in enumerate(stores):
            await store.save(record(f"r{number}"))
        assert {*await ids(stores[0])} >= {f"r{number}" for number in range(6)}
    finally:
        for store in stores:
            store.close()


# Brings a store to our version, and is killed within the step whose number it is given.
KILLED = """
import os, signal, sys
from pathlib import Path
from proxy_inference_engine.store import Store, migrations
steps, step = list(migrations.MIGRATIONS), int(sys.argv[2])
steps[step] = steps[step]._replace(work=lambda _: os.kill(os.getpid(), signal.SIGKILL))
migrations.MIGRATIONS = tuple(steps)
Store.open(sys.argv[1] if "://" in sys.argv[1] else Path(sys.argv[1]))
"""


@pytest.mark.parametrize("step", range(VERSION))
async def test_a_start_that_is_killed_between_goes_on_the_next_time(where: Where, step: int) -> None:
    if isinstance(where, Path) and step:
        earlier.write(where, str(step))
    command = [sys.executable, "-c", KILLED, str(where), str(step)]
    died = subprocess.run(command, cwd=_ROOT, env={"PYTHONPATH": "src"}, capture_output=True, timeout=HANG_S)
    assert died.returncode == -signal.SIGKILL, died.stderr
    async with opened(where) as store:
        await store.save(record("x"))
        assert "x" in await ids(store)
        if isinstance(where, Path) and step:
            assert await store.past("response", "anna", "a") is not None
    assert execute(where, "SELECT version FROM schema") == (VERSION,)
