"""Files in their folder: bounded together, whole or not there, and removed when nobody knows them."""

import asyncio
import os
from pathlib import Path

import pytest

from proxy_inference_engine.errors import QuotaExceeded, TooLarge
from proxy_inference_engine.store import FileFolder, FileLimits, Record, Store
from proxy_inference_engine.store.files import LOST_SECONDS

LIMITS = FileLimits(of_one=100, of_owner=150, of_all=200)


@pytest.fixture
def files(tmp_path: Path) -> FileFolder:
    return FileFolder(tmp_path, LIMITS)


def put(files: FileFolder, owner: str, name: str, size: int) -> None:
    file = files.create(owner, name, size)
    file.write(b"x" * size)
    file.finish()


def test_a_file_is_there_when_it_is_whole(files: FileFolder) -> None:
    file = files.create("anna", "file-1")
    file.write(b"ab")
    assert not files.path("anna", "file-1").exists()
    file.write(b"c")
    file.finish()
    assert files.path("anna", "file-1").read_bytes() == b"abc"
    assert files.path("anna", "file-1").stat().st_mode & 0o077 == 0


def test_what_is_given_up_leaves_nothing(files: FileFolder, tmp_path: Path) -> None:
    file = files.create("anna", "file-1", 50)
    file.write(b"ab")
    file.abandon()
    file.abandon()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_bounds_of_one_of_an_owner_and_of_all(files: FileFolder) -> None:
    with pytest.raises(TooLarge):
        files.create("anna", "file-0", 101)
    put(files, "anna", "file-1", 90)
    with pytest.raises(QuotaExceeded):
        files.create("anna", "file-2", 90)
    put(files, "ben", "file-3", 90)
    with pytest.raises(QuotaExceeded):
        put(files, "carl", "file-4", 30)
    assert files.room("carl") == 20 and not files.overflows("carl")


def test_what_is_announced_is_taken(files: FileFolder) -> None:
    first = files.create("anna", "file-1", 100)
    with pytest.raises(QuotaExceeded):
        files.create("anna", "file-2", 100)
    first.abandon()
    files.create("anna", "file-2", 100).abandon()


def test_a_file_that_grows_beyond_its_bounds_is_refused(files: FileFolder) -> None:
    file = files.create("anna", "file-1")
    with pytest.raises(TooLarge):
        file.write(b"x" * 101)
    file.abandon()


def test_old_files_may_be_lost(files: FileFolder) -> None:
    put(files, "anna", "file-1", 10)
    put(files, "anna", "file-2", 10)
    os.utime(files.path("anna", "file-1"), (0, 0))
    assert [held.name for held in files.lost(now=LOST_SECONDS + 1.0)] == ["file-1"]


def batch(id_: str, owner: str = "anna") -> Record:
    return Record("batch", id_, owner, 1, {"input_file_id": "file-1", "status": "validating"}, {}, status="in_progress")


async def test_a_batch_of_a_process_that_is_gone_is_adopted_where_its_file_is(tmp_path: Path) -> None:
    first = Store.open(tmp_path / "store.db")
    await asyncio.to_thread(put, first.files, "anna", "file-1", 10)
    for record in (batch("batch_1"), batch("batch_2", owner="ben")):
        await first.save(record)
    second = Store.open(tmp_path / "store.db")
    assert await second.adopt_batches() == [], "its process lives"
    first.close()
    assert await second.adopt_batches() == [("anna", "batch_1")], "ben's file is not here"
    assert await second.adopt_batches() == []
    second.close()


async def test_an_object_is_changed_whoever_else_changes_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    await store.save(batch("batch_1"))

    def counting(record: Record) -> Record:
        return Record(**{**{name: getattr(record, name) for name in record.__slots__}, "body": {
            **record.body, "number": record.body.get("number", 0) + 1}})  # fmt: skip

    await asyncio.gather(*(store.change("batch", "anna", "batch_1", counting) for _ in range(20)))
    found = await store.load("batch", "anna", "batch_1")
    assert found is not None and found.body["number"] == 20
    assert await store.change("batch", "ben", "batch_1", counting) is None
    store.close()
