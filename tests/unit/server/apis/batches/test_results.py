"""Results that grow line by line, and what is found of them after a crash at any byte."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from proxy_inference_engine.server.apis.batches.results import BatchResults
from proxy_inference_engine.store import FileFolder, FileLimits

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


def test_they_get_their_names_once_and_it_does_not_matter_how_often(tmp_path: Path) -> None:
    fill(written := results(tmp_path), 4)
    first = written.publish("file-1", "file-2")
    assert first == results(tmp_path).publish("file-1", "file-2")
    assert all(num_bytes for _, num_bytes in first)
    assert sorted(path.name for path in (tmp_path / "anna").iterdir()) == ["file-1", "file-2"]


def test_nothing_is_no_file(tmp_path: Path) -> None:
    assert results(tmp_path).publish("file-1", "file-2") == [("file-1", 0), ("file-2", 0)]
