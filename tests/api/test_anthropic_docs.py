"""The examples of docs/messages.md, run as they stand, against a server of their own."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.running import Running

PAGE = (Path(__file__).parents[2] / "docs" / "messages.md").read_text()
ADDRESS = "http://127.0.0.1:8000"


def examples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("code", examples("python"))
def test_python(server: Running, code: str) -> None:
    assert ADDRESS in code
    run = subprocess.run(
        [sys.executable, "-c", code.replace(ADDRESS, server.url)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0 and run.stdout, run.stderr


def test_curl(server: Running) -> None:
    (command,) = [each for each in examples("sh") if each.startswith("curl")]
    words = shlex.split(command.replace(ADDRESS, server.url).replace("\\\n", ""))
    try:
        run = subprocess.run([*words, "-sS"], capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        pytest.skip("there is no curl")
    assert json.loads(run.stdout)["type"] == "message", run.stderr


def test_all_examples_are_found() -> None:
    assert len(examples("python")) == 3 and PAGE.count("```python") == 3
