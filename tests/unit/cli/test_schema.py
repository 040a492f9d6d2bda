"""`pie schema`: what it says to people about one schema, and to programs about many. Needs a vocabulary, no weights."""

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from proxy_inference_engine.cli import main
from tests.model.gguf_files import write_llama

pytestmark = pytest.mark.model

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"size": {"type": "integer", "minimum": 0}, "colour": {"enum": ["red", "grün"]}},
    "required": ["size", "colour"],
    "additionalProperties": False,
}
UNIQUE = {"type": "array", "items": {"type": "number"}, "uniqueItems": True}
SPREAD = {"mean", "p50", "p99", "max"}


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of whoever runs the tests, and short names of files."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("PIE_"):
            monkeypatch.delenv(name)


def write(name: str, value: Any) -> str:
    Path(name).write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return name


def test_a_schema_that_can_be_enforced(capsys: pytest.CaptureFixture[str]) -> None:
    good = write("good.json", {"size": 3, "colour": "grün"})
    assert main(["schema", write("s.json", SCHEMA), good]) == 0
    head, instance, masks = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"s\.json: can be enforced\. Compiled in \d+\.\d ms\.", head)
    told = re.fullmatch(r"  good\.json: accepted; (\d+) tokens, (\d+) of them forced", instance)
    assert told is not None and 0 < int(told[2]) < int(told[1])
    assert re.fullmatch(r"  a mask takes \d+ µs \(p50\), \d+ µs \(p99\), \d+ µs at most", masks)


def test_the_vocabulary_is_that_of_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    """One whose tokens are single bytes, beside the bundled one; it asks for no spaces either."""
    tiny = write_llama(Path("tiny.gguf"))
    arguments = ["schema", write("s.json", SCHEMA), write("good.json", {"size": 3, "colour": "grün"})]
    assert main([*arguments, "--model", str(tiny)]) == main(arguments) == 0
    of_bytes, bundled = map(int, re.findall(r"accepted; (\d+) tokens", capsys.readouterr().out))
    assert bundled < len('{"size":3,"colour":"grün"}'.encode()) <= of_bytes


def test_instances_that_are_refused_are_shown_to_the_character(capsys: pytest.CaptureFixture[str]) -> None:
    good = write("good.json", {"size": 3, "colour": "red"})
    names = [
        write("colour.json", {"size": 3, "colour": "rot"}),
        write("order.json", {"colour": "red", "size": 3}),
        write("short.json", {"size": 3}),
    ]
    assert main(["schema", write("s.json", SCHEMA), good, *names]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "good.json: accepted" in lines[1]
    for line, before in zip(lines[2:], ('{"size": 3, "colour": "r', '{"', '{"size": 3'), strict=False):
        told = re.search(r"refused at character (\d+): (.*) ⟦here⟧", line)
        # A token may hold more than the character that is wrong.
        assert told is not None and before.startswith(told[2]) and int(told[1]) == len(told[2])


def test_a_schema_that_cannot_be_enforced(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", write("s.json", UNIQUE)]) == 1
    head, reason, advice, relaxed = capsys.readouterr().out.splitlines()
    assert head == "s.json: cannot be enforced."
    assert advice.startswith("  → ")
    assert "uniqueItems" in reason and "strict: false" in relaxed and "uniqueItems" in relaxed


@pytest.mark.parametrize("value", [{"type": "foo"}, False, 5, []])
def test_a_schema_that_is_none(value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", write("s.json", value)]) == 1
    head, reason = capsys.readouterr().out.splitlines()  # nothing that could be left out would help
    assert head == "s.json: cannot be enforced." and reason.startswith("  ")


def test_a_reference_that_leads_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", write("s.json", {"$ref": "https://example.org/s.json"})]) == 1
    _, reason, advice = capsys.readouterr().out.splitlines()
    assert "leads out of the schema" in reason and "under $defs" in advice


def line(name: str, schema: Any, *tests: tuple[bool, Any]) -> str:
    return json.dumps(
        {"name": name, "schema": schema, "tests": [{"valid": valid, "data": data} for valid, data in tests]}
    )


LINES = [
    line("plain", SCHEMA, (True, {"size": 1, "colour": "red"}), (False, {"size": -1, "colour": "red"}), (False, 3)),
    line("wrongly labelled ü", {"type": "string"}, (True, "é\n😀"), (False, "a"), (True, 1)),
    line("refused", UNIQUE, (True, []), (False, ["a", "a"])),
    line("no tests", {"type": "null"}),
    line("always", True, (True, {"a": [None, 1.5]})),
    line("number", {"type": "number"}, (True, 1e30), (True, -0.25), (True, 0), (False, "0")),
    line("in another order", SCHEMA, (True, {"colour": "red", "size": 1})),
]
RESULTS = {
    "plain": [True, False, False],
    "wrongly labelled ü": [True, True, False],
    "refused": [],
    "no tests": [],
    "always": [True],
    "number": [True, True, True, False],
    "in another order": [True],
}


def bulk(path: str, capsys: pytest.CaptureFixture[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The lines and the summary of a run that must succeed, and say nothing else."""
    assert main(["schema", "--bulk", path]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    *lines, last = map(json.loads, out.splitlines())
    assert list(last) == ["summary"]
    return lines, last["summary"]


@pytest.mark.parametrize("name", ["lines.jsonl", "lines.jsonl.gz"])
def test_many_schemas(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = ("\n".join([*LINES[:3], "", *LINES[3:]]) + "\n").encode()
    Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    lines, summary = bulk(name, capsys)
    assert {told["name"]: told["results"] for told in lines} == RESULTS
    assert [told["name"] for told in lines] == list(RESULTS)  # in the order of the file
    for told in lines:
        assert list(told) == ["name", "compiled", "error", "results", "compile_ms", "mask_us"]
        assert told["compiled"] is (told["error"] is None) and told["compile_ms"] > 0
        masks = told["mask_us"]
        assert set(masks) == SPREAD and 0 <= masks["p50"] <= masks["p99"] <= masks["max"] and masks["mean"] >= 0
        assert (masks["max"] > 0) == bool(told["results"])
    assert [told["name"] for told in lines if not told["compiled"]] == ["refused"]
    assert "uniqueItems" in lines[2]["error"]
    counts = {key: value for key, value in summary.items() if isinstance(value, int)}
    expected = {"schemas": 7, "compiled": 6, "passed": 5, "refused_valid": 1, "accepted_invalid": 1, "instances": 12}
    assert counts == expected
    assert set(summary["compile_ms"]) == set(summary["mask_us"]) == SPREAD


def test_an_empty_file(capsys: pytest.CaptureFixture[str]) -> None:
    lines, summary = bulk(write("lines.jsonl", ""), capsys)
    assert lines == [] and summary["schemas"] == 0


def test_what_is_no_text_is_refused_and_the_rest_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Half a surrogate pair can be written in JSON, but not in UTF-8."""
    halves = [line("half \ud800", {"type": "string"}, (True, "\ud800")), line("whole", {"type": "string"}, (True, "a"))]
    lines, _ = bulk(write("lines.jsonl", "\n".join(halves)), capsys)
    assert [told["results"] for told in lines][1:] == [[True]] and lines[0]["name"] == "half \ud800"


def test_spacing_is_the_configured_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIE_JSON_SPACING", "compact")
    assert main(["schema", write("s.json", SCHEMA), write("i.json", {"size": 3, "colour": "blue"})]) == 1
    assert '{"size":3,"colour":"' in capsys.readouterr().out


DEEP = "[" * 100_000 + "]" * 100_000
CUT = gzip.compress("\n".join(LINES).encode())[:-20]
WRONG: list[tuple[str, str | bytes, str]] = [
    ("lines.jsonl", "nonsense", "line 1"),
    ("lines.jsonl", LINES[0] + "\n[1]", "line 2"),
    ("lines.jsonl", '{"name": "a", "schema": {}}', "line 1"),
    ("lines.jsonl", '{"name": "a", "schema": {}, "tests": [1]}', "line 1"),
    ("lines.jsonl", '{"name": "a", "schema": {}, "tests": [{"valid": true}]}', "line 1"),
    ("lines.jsonl", '{"name": "a", "schema": {}, "tests": [{"data": 1}]}', "line 1"),
    ("lines.jsonl", f'{{"name": "a", "schema": {DEEP}, "tests": []}}', "line 1"),
    ("lines.jsonl", b'{"name": "\xff"}', "UTF-8"),
    ("lines.jsonl.gz", "no archive", "gzip"),
    ("lines.jsonl.gz", CUT, "lines.jsonl.gz"),
]


def complaint(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr of a command that failed."""
    assert main(["schema", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("pie: ") and error.count("\n") == 1 and len(error) < 500
    return error


@pytest.mark.parametrize(("name", "data", "expected"), WRONG)
def test_files_of_lines_that_cannot_be_read(
    name: str, data: str | bytes, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_bytes(data.encode() if isinstance(data, str) else data)
    assert expected in complaint(["--bulk", name], capsys)


@pytest.mark.parametrize("text", ["nonsense", "", DEEP])
def test_files_that_are_no_json(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "bad.json" in complaint([write("bad.json", text)], capsys)
    assert "bad.json" in complaint([write("s.json", SCHEMA), "bad.json"], capsys)


@pytest.mark.parametrize("arguments", [["none.json"], ["--bulk", "none.jsonl"], ["--bulk", "none.jsonl.gz"]])
def test_files_that_are_not_there(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such file" in complaint(arguments, capsys)


def test_one_or_many(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], [write("s.json", SCHEMA), "--bulk", "s.json"]):
        assert "--bulk" in complaint(arguments, capsys)
    assert "no such file" in complaint(["s.json", "--model", "missing.gguf"], capsys)


@pytest.mark.parametrize("arguments", [["s.json", "--port", "1"], ["--bulk"]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["schema", *arguments])
    assert "--help" in capsys.readouterr().err
