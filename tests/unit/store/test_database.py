"""Whatever is found in the folder, the server starts with a whole database or says in one line why not."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.store import Record, Store, StoreLimits
from proxy_inference_engine.store.objects import PURGED_ROWS, Key, Objects
from proxy_inference_engine.store.sqlite.database import connect, prepare
from tests.clock import Clock
from tests.polling import until
from tests.unit.store.stores import ids, opened, record

_TORN = 4096  # where the second page begins


def damage(path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    match kind:
        case "header":
            data[:16] = b"not a database!!"
        case "page":
            data[_TORN : _TORN + 2048] = b"\xaa" * 2048
        case "short":
            data = data[: len(data) // 2]
        case "text":
            data = bytearray(b"hello\n" * 1000)
    path.write_bytes(data)


async def filled(path: Path) -> None:
    async with opened(path) as store:
        for number in range(100):
            await store.save(record(f"r{number}", text="x" * 1000))


@pytest.mark.parametrize("kind", ["header", "page", "short", "text"])
async def test_a_damaged_file_is_refused_and_kept(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store.db"
    await filled(path)
    damage(path, kind)
    damaged = path.read_bytes()
    for _ in range(2):  # the refusal itself changes nothing
        with pytest.raises(StartupError, match=r"damaged .* move the file away .* PIE_DATA_DIR") as caught:
            Store.open(path)
        assert str(path) in caught.value.message and "\n" not in caught.value.message
        assert path.read_bytes() == damaged
    path.rename(tmp_path / "away.db")
    async with opened(path) as store:
        assert await ids(store) == []


async def test_an_empty_file_is_filled(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch()
    async with opened(path) as store:
        await store.save(record("x"))


async def test_tables_that_were_begun_and_not_finished_are_made(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TABLE schema (version INTEGER NOT NULL)")
    async with opened(path) as store:
        await store.save(record("x"))


@pytest.mark.parametrize("name", ["file/store.db", "folder"])
def test_a_place_that_cannot_be_used_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(StartupError, match="PIE_DATA_DIR") as caught:
        Store.open(tmp_path / name)
    assert str(tmp_path / name) in caught.value.message and "\n" not in caught.value.message


def crashed(path: Path, saved: Record, run: str) -> None:
    """What a process leaves behind that died after a write."""
    with closing(connect(path)) as connection:
        Objects(StoreLimits(), Clock()).put(connection, saved, run)


async def test_responses_cut_off_by_a_crash_are_failed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store.db"
    prepare(path)
    output = [{"id": "m", "status": "completed"}, {"id": "n", "status": "in_progress"}]
    for status in ("queued", "in_progress", "completed", "failed", "cancelled", "incomplete"):
        crashed(path, record(status, status=status, error=None, output=output), "dead")
    async with opened(path) as store:
        found = {one.id: one for one in (await store.list("response", "anna")).records}
    for id_ in ("completed", "failed", "cancelled", "incomplete"):
        assert found[id_].status == id_ and found[id_].body["error"] is None
    for id_ in ("queued", "in_progress"):
        assert found[id_].status == found[id_].body["status"] == "failed"
        assert found[id_].body["error"]["code"] == "server_error"
        assert [item["status"] for item in found[id_].body["output"]] == ["completed", "incomplete"]
        assert found[id_].extra == {"input": [id_]}
    assert [line.fields["failed"] for line in caplog.records if hasattr(line, "fields")] == [2]


async def test_responses_of_another_living_server_go_on(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as first:
        await first.save(record("x", status="in_progress"))
        async with opened(path) as second:
            found = await second.load("response", "anna", "x")
            assert found is not None and found.status == "in_progress"
            await second.save(record("y", status="queued"))
        await first.save(record("x"))
        async with opened(path) as third:  # the second has ended by now
            assert {one.id: one.status for one in (await third.list("response", "anna")).records} == {
                "x": "completed",
                "y": "failed",
            }
    assert {file.name for file in tmp_path.iterdir()} == {"store.db", "store.db.reserve"}


def count(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute("SELECT count(*) FROM objects").fetchone()
    assert isinstance(number, int)
    return number


def test_a_purge_takes_a_few_rows_at_a_time() -> None:
    clock = Clock()
    objects = Objects(StoreLimits(ttl_seconds=60), clock)
    with closing(connect(None)) as connection:
        for number in range(150):
            objects.put(connection, record(f"r{number}"), "")
        objects.put(connection, record("conv", kind="conversation"), "")
        for number in range(250):
            objects.put_item(connection, "anna", "conv", {"id": f"m{number}"})
        objects.put(connection, record("gone"), "")
        objects.remove(connection, Key("response", "anna", "gone"))
        assert not objects.purge(connection) and count(connection) == 402
        clock.now += 60
        objects.put(connection, record("young"), "")
        before, num_turns = count(connection), 0
        while objects.purge(connection):
            num_turns += 1
            assert before - count(connection) <= PURGED_ROWS
            before = count(connection)
        assert num_turns == 401 // PURGED_ROWS
        assert connection.execute("SELECT id FROM objects").fetchall() == [("gone",), ("young",)]
        assert connection.execute("SELECT * FROM owners").fetchall() == [("anna", 1)]
        clock.now += 3600
        objects.purge(connection)
        assert count(connection) == 0
        assert connection.execute("SELECT * FROM owners").fetchall() == [("anna", 0)]


async def test_a_store_purges_by_itself(tmp_path: Path) -> None:
    path, clock = tmp_path / "store.db", Clock()
    await filled(path)
    clock.now += StoreLimits().ttl_seconds
    async with opened(path, clock=clock) as store:
        with closing(connect(path)) as connection:
            await until(lambda: count(connection) == 0)
        await store.save(record("new"))
        assert await ids(store) == ["new"]


async def test_a_power_cut_loses_only_what_was_not_acknowledged(tmp_path: Path) -> None:
    """A log that ends anywhere leaves the commits before that point, whole and in order."""
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    async with opened(path) as store:
        for number in range(6):
            await store.save(record(f"r{number}", text=str(number) * 3000))
        base, log = path.read_bytes(), (tmp_path / "store.db-wal").read_bytes()
    counts = []
    for end in (*range(0, len(log), 512), len(log)):
        copy.write_bytes(base)
        (tmp_path / "copy.db-wal").write_bytes(log[:end])
        with closing(connect(copy)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            found = connection.execute("SELECT id FROM objects ORDER BY seq").fetchall()
        assert found == [(f"r{number}",) for number in range(len(found))]
        counts.append(len(found))
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] == 6
