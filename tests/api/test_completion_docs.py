"""The examples of docs/completions.md are run, in their order."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.api.running import Running

PAGE = (Path(__file__).parents[2] / "docs" / "completions.md").read_text()
ADDRESS = "http://127.0.0.1:8000"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_python(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    assert len(blocks("python")) == PAGE.count("```python") == 4
    for block in blocks("python"):
        exec(compile(block.replace(ADDRESS, server.url), "docs/completions.md", "exec"), names)
        assert capsys.readouterr().out
    names["client"].close()  # type: ignore[attr-defined]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(server: Running) -> None:
    (command,) = blocks("sh")
    words = ["sh", "-c", command.replace(ADDRESS, server.url)]
    answer = json.loads(subprocess.run(words, capture_output=True, timeout=60, check=True).stdout)
    assert answer["object"] == "text_completion" and answer["choices"][0]["text"]
