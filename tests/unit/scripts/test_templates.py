"""The table over a folder of chat templates."""

import sys
from pathlib import Path

import pytest

from scripts import templates
from tests.unit.formats.derived.corpus import CORPUS, Written
from tests.unit.formats.derived.families import FAMILIES, Family


def test_the_table_tells_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = next(each for each in CORPUS if each.name == "strings between marks")
    (tmp_path / "marked.jinja").write_text(marked.template, encoding="utf-8")
    (tmp_path / "lines.jinja").write_text(
        "{% for m in messages %}{{ m.role + m.content }}{% endfor %}", encoding="utf-8"
    )
    (tmp_path / "broken.jinja").write_text("{% for m in messages %}", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["templates.py", str(tmp_path)])
    assert templates.main() == 0
    header, broken, plain, found, _, calls, cells, syntax, taught, reasoning = capsys.readouterr().out.splitlines()
    assert header.split() == ["template", "rendered", "family", "taught", "calls", "reasoning", "ms"]
    assert "the chat template fails" in broken
    assert " plain " in plain
    assert found.split()[:5] == ["marked.jinja", "same", "14", "derived", "4/4"] and " yes " in found
    assert calls == "3 templates; 1 of 1 that take tools round-trip every call"
    assert cells == "conversations as jinja2 renders them, and not: {'differ': 7, 'same': 21}"
    assert syntax == "syntax: {\"a family's\": 2, 'derived': 1}"
    assert taught == "tools told by us: {}"
    assert reasoning == "reasoning: {'yes': 1}"


@pytest.mark.parametrize("subject", [*CORPUS, *FAMILIES], ids=str)
def test_every_template_of_ours_round_trips(subject: Written | Family) -> None:
    """As the table measures those that are published: hard texts, rich values, two calls, reasoning."""
    line = templates.measure(subject.template)
    num_read, num_rows = line["calls"].split("/")
    assert num_read == num_rows in ("3", "4") and line["taught"] == ""
    assert line.get("reasoning", "yes") == "yes"
    assert "ours" not in line["rendered"] and "theirs" not in line["rendered"]
