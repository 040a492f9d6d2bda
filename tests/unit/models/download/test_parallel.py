"""A large file over several connections: pieces in any order, kept when it is stopped, and servers that do not help."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from proxy_inference_engine.models.download import parallel
from proxy_inference_engine.models.download.listing import RemoteFile
from proxy_inference_engine.models.download.scattered import ScatteredFile, read_note
from proxy_inference_engine.models.download.spans import Span, Spans
from tests.hub import Hub, digest, serving
from tests.polling import wait_until
from tests.unit.models.download.pulling import GGUF, NAME, Watcher, blobs, fetch, refused

PIECE = 64 << 10
DIGEST = digest("tiny-Q8_0.gguf", GGUF)
NUM_PIECES = -(-len(GGUF) // PIECE)
# A program of its own, for those that are killed: what `pie pull` runs, with pieces that suit a small file.
PULL = f"""
import sys
from proxy_inference_engine.models.download import parallel
parallel.PIECE_BYTES = {PIECE}
from proxy_inference_engine.cli import main
sys.exit(main(["pull", "{NAME}"]))
"""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "PIECE_BYTES", PIECE)


def ranges(hub: Hub) -> list[str]:
    return [each.range or "" for each in hub.asked if each.path.startswith("/stored/")]


def begun(cache: Path, *spans: tuple[int, int], tag: str | None = None) -> Path:
    """What a download that was stopped has left."""
    path = cache / "models--owner--tiny" / "blobs" / f"{DIGEST}.pieces.incomplete"
    path.parent.mkdir(parents=True)
    content = bytearray(len(GGUF))
    for start, end in spans:
        content[start:end] = GGUF[start:end]
    note = json.dumps({"tag": tag, "spans": spans}).encode()
    path.write_bytes(bytes(content) + note.ljust(4096))
    return path


def test_every_piece_is_asked_for_once(hub: Hub, cache: Path) -> None:
    watcher = Watcher()
    assert fetch(hub, watcher=watcher).read_bytes() == GGUF
    starts = range(0, len(GGUF), PIECE)
    assert sorted(ranges(hub)) == sorted(f"bytes={start}-{min(start + PIECE, len(GGUF)) - 1}" for start in starts)
    assert blobs(cache) == {DIGEST: GGUF}
    done = [num_bytes for num_bytes, _ in watcher.shown]
    assert done == sorted(done) and watcher.shown[-1] == (len(GGUF), len(GGUF))


def test_a_small_file_comes_in_one(hub: Hub) -> None:
    hub.repositories[NAME] = {"tiny-Q8_0.gguf": GGUF[: 2 * PIECE - 1]}
    fetch(hub)
    assert ranges(hub) == [""]


def test_pieces_that_break_are_taken_up_where_they_broke(hub: Hub) -> None:
    hub.cuts = [1000, 0, 50_000, 1, 2, 3]
    watcher = Watcher()
    assert fetch(hub, watcher=watcher).read_bytes() == GGUF
    assert len(ranges(hub)) == NUM_PIECES + 6
    assert watcher.shown[-1] == (len(GGUF), len(GGUF))


def test_a_busy_server_is_asked_again(hub: Hub) -> None:
    class Late(Watcher):
        def say(self, line: str) -> None:
            hub.refusals = [(503, {"Retry-After": "0"}), (429, {}), (500, {})]

    assert fetch(hub, watcher=Late()).read_bytes() == GGUF


def test_what_never_comes_is_given_up_and_kept(hub: Hub, cache: Path) -> None:
    hub.cuts = [1000] * 8 + [0] * 100
    assert "the connection ended early; the same command goes on" in refused(hub)
    settle(hub)
    hub.cuts = []
    path = next((cache / "models--owner--tiny" / "blobs").iterdir())
    _, spans = read_note(path, RemoteFile("tiny-Q8_0.gguf", len(GGUF), DIGEST))
    assert path.name == f"{DIGEST}.pieces.incomplete" and 0 < spans.num_bytes < len(GGUF)
    watcher = Watcher()
    assert fetch(hub, watcher=watcher).read_bytes() == GGUF
    assert watcher.shown[0] == (spans.num_bytes, len(GGUF))
    assert asked_bytes(hub) == len(GGUF) - spans.num_bytes


def settle(hub: Hub) -> None:
    """Wait for the threads of a download that was stopped; then forget what was asked for."""
    for thread in threading.enumerate():
        if thread.name == "download":
            thread.join(60)
    hub.asked = []


def asked_bytes(hub: Hub) -> int:
    pairs = (each.removeprefix("bytes=").split("-") for each in ranges(hub))
    return sum(int(last) + 1 - int(first) for first, last in pairs)


def test_only_gaps_are_fetched(hub: Hub, cache: Path) -> None:
    begun(cache, (0, 1000), (PIECE, 5 * PIECE), (900_000, len(GGUF)), tag=f'"{DIGEST}"')
    watcher = Watcher()
    assert fetch(hub, watcher=watcher).read_bytes() == GGUF
    assert asked_bytes(hub) == len(GGUF) - 1000 - 4 * PIECE - (len(GGUF) - 900_000)
    assert watcher.shown[-1] == (len(GGUF), len(GGUF))


def test_a_file_begun_in_order_goes_on_in_pieces(hub: Hub, cache: Path) -> None:
    path = cache / "models--owner--tiny" / "blobs" / f"{DIGEST}.incomplete"
    path.parent.mkdir(parents=True)
    path.write_bytes(GGUF[:123_456])
    assert fetch(hub).read_bytes() == GGUF
    assert asked_bytes(hub) == len(GGUF) - 123_456
    assert blobs(cache) == {DIGEST: GGUF}


def test_a_server_without_ranges_sends_it_in_one(hub: Hub, cache: Path) -> None:
    hub.has_ranges = False
    watcher = Watcher()
    assert fetch(hub, watcher=watcher).read_bytes() == GGUF
    assert blobs(cache) == {DIGEST: GGUF} and watcher.shown[-1] == (len(GGUF), len(GGUF))


def test_a_server_that_loses_its_ranges(hub: Hub, cache: Path) -> None:
    """What came without a gap is kept, but such a server can only begin again."""
    begun(cache, (0, 3 * PIECE), (5 * PIECE, 6 * PIECE))
    hub.has_ranges = False
    watcher = Watcher()
    assert fetch(hub, watcher=watcher).read_bytes() == GGUF
    assert f"bytes={3 * PIECE}-" in ranges(hub)
    assert watcher.shown[-1] == (len(GGUF), len(GGUF))


def test_a_changed_file_starts_over(hub: Hub, cache: Path) -> None:
    """Noticed by its tag with the first answer, not by the digest after the last."""
    path = begun(cache, (0, 3 * PIECE), tag='"of another file"')
    content = path.read_bytes()
    path.write_bytes(content[PIECE : 2 * PIECE] + content[PIECE:])  # what is there is of the other one
    watcher = Watcher()
    assert fetch(hub, watcher=watcher).read_bytes() == GGUF
    assert "'tiny-Q8_0.gguf' has changed on the server: starting over" in watcher.lines
    assert watcher.shown[-1] == (len(GGUF), len(GGUF))


def test_a_tag_that_changes_in_the_middle(hub: Hub) -> None:
    class Later(Watcher):
        def show(self, num_bytes: int, total_bytes: int) -> None:
            super().show(num_bytes, total_bytes)
            hub.tags["tiny-Q8_0.gguf"] = "b" if num_bytes > 2 * PIECE else "a"

    assert fetch(hub, watcher=Later()).read_bytes() == GGUF


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"tag": 1, "spans": []}', b'{"tag": null, "spans": [[9, 1]]}'])
def test_a_note_that_is_wrong_counts_for_nothing(hub: Hub, cache: Path, damage: bytes) -> None:
    path = begun(cache)
    path.write_bytes(bytes(len(GGUF)) + damage.ljust(4096))
    assert fetch(hub).read_bytes() == GGUF
    assert asked_bytes(hub) == len(GGUF)


def test_wrong_bytes_are_thrown_away(hub: Hub, cache: Path) -> None:
    """A note that lies is found out by the digest, and the file fetched again."""
    path = begun(cache, (0, 2 * PIECE))
    path.write_bytes(b"wrong" + path.read_bytes()[5:])
    assert fetch(hub).read_bytes() == GGUF
    hub.repositories[NAME]["tiny-Q8_0.gguf"] = GGUF[::-1]
    hub.served["tiny-Q8_0.gguf"] = GGUF
    assert "has not the digest" in refused(hub)
    assert blobs(cache) == {DIGEST: GGUF}


def test_a_disk_that_has_no_room(hub: Hub, cache: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, before[1]))
    try:
        assert "cannot be written: File too large" in refused(hub)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert fetch(hub).read_bytes() == GGUF


def test_ctrl_c_leaves_what_came(hub: Hub, cache: Path) -> None:
    class Impatient(Watcher):
        def show(self, num_bytes: int, total_bytes: int) -> None:
            if num_bytes >= 300_000:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(hub, watcher=Impatient())
    path = next((cache / "models--owner--tiny" / "blobs").iterdir())
    _, spans = read_note(path, RemoteFile("tiny-Q8_0.gguf", len(GGUF), DIGEST))
    assert spans.num_bytes >= 300_000
    assert all(path.read_bytes()[start:end] == GGUF[start:end] for start, end in spans)
    settle(hub)
    assert fetch(hub).read_bytes() == GGUF
    assert asked_bytes(hub) == len(GGUF) - spans.num_bytes


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_program_that_is_ended_in_the_middle(hub: Hub, cache: Path, number: signal.Signals) -> None:
    """Several pieces stand still, the others come; whatever ends the program, most need not come again."""
    hub.stalls = [10_000, 20_000]
    environment = {"PATH": os.environ["PATH"], "HOME": str(cache.parent), "HF_ENDPOINT": hub.endpoint}
    environment |= {"HF_HOME": os.environ["HF_HOME"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background inherits another
    try:
        program = subprocess.Popen([sys.executable, "-c", PULL], env=environment, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    path = cache / "models--owner--tiny" / "blobs" / f"{DIGEST}.pieces.incomplete"
    file = RemoteFile("tiny-Q8_0.gguf", len(GGUF), DIGEST)
    wait_until(lambda: path.exists() and read_note(path, file)[1].num_bytes >= len(GGUF) // 2)
    program.send_signal(number)
    program.communicate(timeout=60)
    _, spans = read_note(path, file)
    assert len(GGUF) // 2 <= spans.num_bytes < len(GGUF)
    with serving() as other:  # the first one may yet come upon what the program asked before it ended
        other.repositories = hub.repositories
        assert fetch(other).read_bytes() == GGUF
        assert asked_bytes(other) == len(GGUF) - spans.num_bytes


def test_without_a_note_it_is_no_beginning(tmp_path: Path) -> None:
    """The first thing that is written is the note: a file with gaps must never pass for one filled in order."""
    file = RemoteFile("a", 1000, "0" * 64)
    target = ScatteredFile(tmp_path / "a", file, 1 << 20)
    assert target.write(500, b"x" * 10)
    _, spans = read_note(tmp_path / "a", file)
    assert spans.num_bytes == 0
    target.close()
    assert not target.write(510, b"x")
    assert list(read_note(tmp_path / "a", file)[1]) == [(500, 510)]


def test_spans_are_what_a_set_of_bytes_would_be() -> None:
    chance = random.Random(7)
    for _ in range(200):
        spans, there, size = Spans(), set[int](), 60
        for _ in range(chance.randrange(12)):
            start = chance.randrange(size)
            end = chance.randrange(start + 1, size + 1)
            spans.add(Span(start, end))
            there |= set(range(start, end))
        assert spans.num_bytes == len(there)
        assert spans.prefix == next(index for index in range(size + 1) if index not in there)
        gaps = spans.gaps(size, 7)
        assert [index for start, end in gaps for index in range(start, end)] == sorted(set(range(size)) - there)
        assert all(0 < end - start <= 7 for start, end in gaps)
