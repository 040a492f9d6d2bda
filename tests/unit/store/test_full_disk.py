"""A full disk refuses what is stored, never what is deleted; and what was deleted makes room."""

import shutil
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy_inference_engine.errors import StoreError
from tests.unit.store.stores import ids, opened, record


class FullDisk(sqlite3.Connection):
    """A disk on which a commit fits only when nothing else takes its room: `taken` is what does."""

    taken: Path | None = None

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if FullDisk.taken is not None and FullDisk.taken.exists() and sql == "COMMIT":
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return super().execute(sql, parameters)


async def test_deleting_takes_the_reserve_and_storing_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal advises to delete stored objects, and deleting was refused with the same words."""
    reserve = tmp_path / "store.db.reserve"
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=FullDisk))
    async with opened(tmp_path / "store.db") as store:
        for id_ in ("a", "b"):
            await store.save(record(id_, text="x" * 5000))
        monkeypatch.setattr(FullDisk, "taken", reserve)
        with pytest.raises(StoreError) as caught:
            await store.save(record("c"))
        assert caught.value.code == "storage_full" and reserve.exists()
        assert await store.delete("response", "anna", "a")
        assert not reserve.exists()
        assert await ids(store) == ["b"]
        await store.save(record("d"))
        assert await ids(store) == ["d", "b"]


async def test_the_reserve_is_there_again_when_there_is_room(tmp_path: Path) -> None:
    path, reserve = tmp_path / "store.db", tmp_path / "store.db.reserve"
    async with opened(path) as store:
        await store.save(record("a"))
    assert reserve.stat().st_blocks * 512 >= 8 << 20, "a file that only seems large keeps no room"
    reserve.unlink()
    async with opened(path) as store:
        await store.save(record("b"))
    assert reserve.exists()


# Fills a small disk with objects and then with another file, to the last byte; deletes; and stores again.
PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from proxy_inference_engine.errors import StoreError
from proxy_inference_engine.store import Record, Store

folder = Path(sys.argv[1])
size = int(sys.argv[2])

def record(id_):
    return Record("response", id_, "anna", 100, {"id": id_, "text": "x" * size}, {})

def fill():
    descriptor = os.open(folder / "other", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for block in (65536, 4096, 1):
        try:
            while True:
                os.write(descriptor, b"x" * block)
        except OSError:
            pass
    os.close(descriptor)

async def main():
    store = Store.open(folder / "store.db")
    stored = []
    try:
        while len(stored) < 5000:
            await store.save(record(f"r{len(stored)}"))
            stored.append(f"r{len(stored)}")
    except StoreError as error:
        assert error.code == "storage_full", error
    assert 5 < len(stored) < 5000, len(stored)
    fill()
    for id_ in stored[: len(stored) // 2]:
        assert await store.delete("response", "anna", id_)
    for number in range(len(stored) // 4):
        fill()
        await store.save(record(f"again{number}"))
    for id_ in stored[len(stored) // 2 :]:
        fill()
        assert await store.delete("response", "anna", id_)
    store.close()
    store = Store.open(folder / "store.db")
    page = await store.list("response", "anna", limit=5000)
    assert {one.id for one in page.records} == {f"again{number}" for number in range(len(stored) // 4)}
    assert await store.delete("response", "anna", "again0")
    store.close()
    print("ok", len(stored))

asyncio.run(main())
"""
MOUNTED = 'mount -t tmpfs -o size=24m tmpfs "$1" && exec "$2" -c "$3" "$1" "$4"'


@pytest.mark.parametrize("size", [5_000, 50_000])
def test_a_disk_that_is_really_full(tmp_path: Path, size: int) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rm", "true"], capture_output=True).returncode:
        pytest.skip("no disk of our own can be mounted here")
    command = [unshare, "-rm", "sh", "-c", MOUNTED, "sh", str(tmp_path), sys.executable, PROGRAM, str(size)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("ok")
