"""Results that grow line by line, and what is found of them after a crash at any byte."""

import json
import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from proxy_inference_engine.server.apis.batches.results import BatchResults
from proxy_inference_engine.store import FileFolder, FileLimits
from tests.polling import HANG_S

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def results(folder: Path) -> BatchResults:
    return BatchResults(FileFolder(folder, FileLimits()), "anna", "batch_1")


def fill(into: BatchResults, count: int) -> None:
    for number in range(count):
        body = {"text": "ünï\u2028code", "usage": USAGE} if number % 3 else {"error": {"code": "x"}}
        into.add(f"l{number}", 200 if number % 3 else 400, "req-1", json.dumps(body).encode())


def test_what_was_added_is_found_again(tmp_path: Path) -> None:
    fill(results(tmp_path), 9)
    found = results(tmp_path)
    found.read()
    assert found.done == {f"l{number}" for number in range(9)}
    assert (found.counts.num_completed, found.counts.num_failed, found.counts.num_input) == (6, 3, 18)


@given(st.integers(0, 2000))
def test_a_crash_at_any_byte_costs_at_most_the_line_it_cut(tmp_path_factory: object, cut: int) -> None:
    folder = tmp_path_factory.mktemp("results")  # type: ignore[attr-defined]
    fill(results(folder), 9)
    path = folder / "anna" / "batch_1.output"
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    found = results(folder)
    found.read()
    kept = path.read_bytes()
    assert whole.startswith(kept) and (kept == b"" or kept.endswith(b"\n"))
    assert found.counts.num_completed == whole[:cut].count(b"\n")


# Files may grow to 1,000 bytes, then as they like: what a full disk does to a line, and what comes when there is room.
FULL = """
import json, resource, sys
from pathlib import Path
from proxy_inference_engine.errors import StoreError
from proxy_inference_engine.server.apis.batches.results import BatchResults
from proxy_inference_engine.store import FileFolder, FileLimits

results = BatchResults(FileFolder(Path(sys.argv[1]), FileLimits()), "anna", "batch_1")

def add(number):
    try:
        results.add(f"l{number}", 200, "req-1", json.dumps({"text": "x" * 120}).encode())
        return True
    except StoreError as error:
        assert error.code == "storage_full"
        return False

most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))
kept = [number for number in range(9) if add(number)]
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
kept += [number for number in range(9, 12) if add(number)]
print(json.dumps([kept, sorted(results.done), results.num_bytes]))
"""


def test_a_line_that_does_not_fit_on_the_disk_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=HANG_S
    )
    assert ended.returncode == 0, ended.stderr
    kept, done, num_bytes = json.loads(ended.stdout)
    assert kept[0] == 0 and 1 < len(kept) < 12 and kept[-3:] == [9, 10, 11]
    written = (tmp_path / "anna" / "batch_1.output").read_bytes()
    lines = [json.loads(line)["custom_id"] for line in written.splitlines()]
    assert lines == [f"l{number}" for number in kept] and sorted(lines) == done and len(written) == num_bytes


def test_they_get_their_names_once_and_it_does_not_matter_how_often(tmp_path: Path) -> None:
    fill(written := results(tmp_path), 4)
    first = written.publish("file-1", "file-2")
    assert first == results(tmp_path).publish("file-1", "file-2")
    assert all(num_bytes for _, num_bytes in first)
    assert sorted(path.name for path in (tmp_path / "anna").iterdir()) == ["file-1", "file-2"]


def test_nothing_is_no_file(tmp_path: Path) -> None:
    assert results(tmp_path).publish("file-1", "file-2") == [("file-1", 0), ("file-2", 0)]
