"""The campaign of `make soak`, a hundredth of each part or more, so that it works on the day it is needed."""

import re
import sys

import pytest

from tests.postgres import require_programs
from tests.soak import cluster_kills
from tests.soak.campaign import PARTS, Row, play, play_all, play_apart, table
from tests.soak.outcome import Outcome
from tests.soak.promises import ROOT, named_files

_SCALE = 0.01
_LARGER = {  # a thousand, all five hundred, and five
    "clients that leave": 0.1,
    "streams at once": 1.0,
    "kill -9 of one of two servers on PostgreSQL": 0.1,
}


@pytest.mark.parametrize("name", PARTS)
def test_a_hundredth(name: str) -> None:
    if PARTS[name] is cluster_kills.run:
        require_programs()
    row = play(name, _LARGER.get(name, _SCALE))
    assert row.outcome.wrong == [] and row.outcome.num > 0


def test_the_table() -> None:
    rows = [Row("one", Outcome(1200, []), 3.4), Row("two", Outcome(5, ["bad", "worse"]), 0.2)]
    assert table(rows).splitlines()[2:] == ["| one | 1,200 | 0 | 3 |", "| two | 5 | 2 | 0 |"]


def test_a_part_that_breaks_off_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_scale: float) -> Outcome:
        raise ValueError("no")

    monkeypatch.setattr("tests.soak.campaign.PARTS", {"broken": broken})
    assert play("broken", 1.0).outcome.wrong == ["it broke off: ValueError: no"]


def test_parts_are_played_apart_and_told_in_their_order() -> None:
    names = ["waits at a full store", "mutated GGUF headers"]  # the first is the last to run
    rows = play_all(names, 0.0001)
    assert [row.name for row in rows] == names
    assert all(row.outcome.wrong == [] and row.outcome.num > 0 for row in rows)


def test_a_part_whose_process_ends_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert play_apart("mutated GGUF headers", 0.0001).outcome.wrong == ["its process ended with 1"]


def test_the_page_names_tests_that_are_there() -> None:
    assert len(named_files()) > 20
    assert [path for path in named_files() if not (ROOT / path).is_file()] == []
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    for name in PARTS:
        assert re.search(rf"\| {re.escape(name)} \|", page), f"the page says nothing of {name!r}"
