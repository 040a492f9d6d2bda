"""The folder of the disk tier: private, one process's, and free of what crashes leave."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from proxy_inference_engine.cache.disk.file import Header, Piece, Stopped
from proxy_inference_engine.cache.disk.folder import Folder

HEADER = Header("model", "tenant", np.arange(4, dtype=np.int32), 0, (Piece(4, 8),))
DATA = [np.arange(8, dtype=np.uint8)]


def write(folder: Folder, name: str) -> None:
    folder.write(name, HEADER, DATA, lambda: True)


def names(path: Path) -> set[str]:
    return {name for name in os.listdir(path) if name != "lock"}


def test_only_the_owner_may_look_into_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    folder = Folder(path)
    write(folder, folder.new_name())
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in path.iterdir()} == {0o600}


def test_an_open_folder_is_closed_to_others(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    Folder(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_one_at_a_time_has_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with pytest.raises(BlockingIOError):
        Folder(tmp_path)
    folder.close()
    Folder(tmp_path).close()


def test_names_tell_nothing_and_do_not_repeat(tmp_path: Path) -> None:
    found = {Folder.new_name() for _ in range(100)}
    assert len(found) == 100 and all(len(name) == 32 for name in found)


def test_what_was_written_is_found_again_with_when_it_was_used(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    write(folder, "old")
    write(folder, "new")
    os.utime(tmp_path / "old.kv", (1, 1))
    os.utime(tmp_path / "new.kv", (2, 2))
    found = {stored.name: stored for stored in folder.scan()}
    assert found["old"].used_at < found["new"].used_at
    assert found["old"].header.is_same(HEADER)
    assert found["old"].num_bytes == (tmp_path / "old.kv").stat().st_size
    folder.touch("old")
    assert {stored.name: stored.used_at for stored in folder.scan()}["old"] > 1_000_000
    assert np.array_equal(folder.read("old", HEADER, 0, 1)[0], DATA[0])


def test_a_scan_removes_what_was_cut_off_or_is_damaged_and_leaves_the_rest(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    write(folder, "sound")
    (tmp_path / "half.part").write_bytes(b"PIE")
    (tmp_path / "torn.kv").write_bytes((tmp_path / "sound.kv").read_bytes()[:-1])
    (tmp_path / "empty.kv").touch()
    (tmp_path / "note.txt").write_text("not ours")
    (tmp_path / "folder.kv").mkdir()
    assert [stored.name for stored in folder.scan()] == ["sound"]
    assert names(tmp_path) == {"sound.kv", "note.txt", "folder.kv"}


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with pytest.raises(Stopped):
        folder.write("stopped", HEADER, DATA, lambda: False)
    (tmp_path / "taken.kv").mkdir()
    with pytest.raises(OSError):
        write(folder, "taken")
    assert names(tmp_path) == {"taken.kv"}


def test_removing_what_is_gone_is_no_error(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    write(folder, "a")
    folder.remove("a")
    folder.remove("a")
    assert names(tmp_path) == set()
    with pytest.raises(FileNotFoundError):
        folder.read("a", HEADER, 0, 1)
