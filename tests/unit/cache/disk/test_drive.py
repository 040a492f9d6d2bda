"""The threads before the disk: they do what is ordered, in order, and survive whatever the disk does."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from proxy_inference_engine.cache.disk.drive import Outcome, Read, Scanned, ThreadedDrive, Wanted, Written
from proxy_inference_engine.cache.disk.file import Header, Piece
from proxy_inference_engine.cache.disk.folder import Folder
from proxy_inference_engine.runners.base import Packed
from tests.polling import HANG_S, wait_until

HEADER = Header("model", "tenant", np.arange(4, dtype=np.int32), 0, (Piece(4, 8),))
DATA = [np.arange(8, dtype=np.uint8)]
LARGE = Header("model", "tenant", np.arange(4, dtype=np.int32), 0, (Piece(4, 200 << 20),))


def wait_for(drive: ThreadedDrive, num_outcomes: int) -> list[Outcome]:
    found: list[Outcome] = []
    deadline = time.monotonic() + HANG_S
    while len(found) < num_outcomes:
        assert time.monotonic() < deadline, f"only {found}"
        found += drive.outcomes(0.05)
    return found


class Stuck(Folder):
    """A disk on which nothing ends until it is let go."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.go = threading.Event()

    def write(self, name: str, header: Header, data: Sequence[Packed], may_go_on: Callable[[], bool]) -> None:
        assert self.go.wait(HANG_S)
        super().write(name, header, data, may_go_on)


class Broken(Folder):
    def write(self, name: str, header: Header, data: Sequence[Packed], may_go_on: Callable[[], bool]) -> None:
        raise OSError(28, "No space left on device")


def test_what_is_there_comes_first_then_what_is_ordered(tmp_path: Path) -> None:
    drive = ThreadedDrive(Folder(tmp_path))
    drive.write("a", HEADER, DATA)
    assert wait_for(drive, 2) == [Scanned([]), Written("a", True)]
    drive.read(7, [Wanted("a", HEADER, 0, 1)])
    [outcome] = wait_for(drive, 1)
    assert isinstance(outcome, Read) and (outcome.ticket, outcome.bad) == (7, None)
    assert np.array_equal(outcome.data[0][0], DATA[0])
    drive.close(5)
    again = ThreadedDrive(Folder(tmp_path))
    [scanned] = wait_for(again, 1)
    assert isinstance(scanned, Scanned) and [stored.name for stored in scanned.files] == ["a"]
    again.remove("a")
    again.close(5)
    assert not list(tmp_path.glob("*.kv"))


def test_a_read_stops_at_the_first_file_that_is_no_good(tmp_path: Path) -> None:
    drive = ThreadedDrive(Folder(tmp_path))
    drive.write("a", HEADER, DATA)
    wait_for(drive, 2)
    drive.read(1, [Wanted(name, HEADER, 0, 1) for name in ("a", "gone", "a")])
    [outcome] = wait_for(drive, 1)
    assert isinstance(outcome, Read) and len(outcome.data) == 1 and outcome.bad == "gone"
    drive.close(5)


def test_a_full_disk_ends_no_thread(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    drive = ThreadedDrive(Broken(tmp_path))
    for name in ("a", "b"):
        drive.write(name, HEADER, DATA)
    assert wait_for(drive, 3) == [Scanned([]), Written("a", False), Written("b", False)]
    assert "No space left" in caplog.text
    drive.close(5)


def test_ordering_never_waits_and_a_reader_does_not_wait_for_the_writer(tmp_path: Path) -> None:
    folder = Stuck(tmp_path)
    drive = ThreadedDrive(folder)
    drive.write("a", HEADER, DATA)
    drive.remove("b")
    drive.read(1, [Wanted("c", HEADER, 0, 1)])
    assert {type(outcome) for outcome in wait_for(drive, 2)} == {Scanned, Read}, "while nothing was written"
    folder.go.set()
    assert wait_for(drive, 1) == [Written("a", True)]
    drive.close(5)


def test_what_may_wait_is_bounded_but_one_of_any_size_may(tmp_path: Path) -> None:
    folder = Stuck(tmp_path)
    drive = ThreadedDrive(folder)
    assert drive.can_write(1 << 40)
    drive.write("a", LARGE, [np.zeros(200 << 20, np.uint8)])
    assert drive.can_write(56 << 20) and not drive.can_write((56 << 20) + 1)
    folder.go.set()
    wait_for(drive, 2)
    assert drive.can_write(1 << 40)
    drive.close(5)


class Halfway(Folder):
    """Every file is half written until there is no more time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_halfway = threading.Event()

    def write(self, name: str, header: Header, data: Sequence[Packed], may_go_on: Callable[[], bool]) -> None:
        checks = iter([True, True])

        def hold() -> bool:
            if next(checks, False):
                return True
            self.is_halfway.set()
            wait_until(lambda: not may_go_on())
            return False

        super().write(name, header, data, hold)


def test_closing_ends_what_is_being_written_and_leaves_no_half_file(tmp_path: Path) -> None:
    folder = Halfway(tmp_path)
    drive = ThreadedDrive(folder)
    wait_for(drive, 1)
    for number in range(20):
        drive.write(str(number), HEADER, DATA)
    wait_until(folder.is_halfway.is_set)
    assert list(tmp_path.glob("*.part"))
    drive.close(0)
    assert wait_for(drive, 20) == [Written(str(number), False) for number in range(20)]
    assert not list(tmp_path.glob("*.part")) and not list(tmp_path.glob("*.kv"))
    Folder(tmp_path).close()
