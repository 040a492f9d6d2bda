"""The examples of docs/responses.md are run, in their order."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.api.running import Running

PAGE = (Path(__file__).parents[2] / "docs" / "responses.md").read_text()
ADDRESS = "http://127.0.0.1:8000"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_python(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    assert len(blocks("python")) == PAGE.count("```python") == 7
    for block in blocks("python"):
        exec(compile(block.replace(ADDRESS, server.url), "docs/responses.md", "exec"), names)
        assert capsys.readouterr().out
    names["client"].close()  # type: ignore[attr-defined]


def test_curl(server: Running) -> None:
    (command,) = blocks("sh")
    try:
        words = ["sh", "-c", command.replace(ADDRESS, server.url)]
        run = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        pytest.skip("there is no shell")
    if run.returncode == 127:
        pytest.skip("there is no curl")
    assert json.loads(run.stdout)["object"] == "response", run.stderr


def test_codex_speaks_responses() -> None:
    (config,) = blocks("toml")
    assert tomllib.loads(config)["model_providers"]["pie"] == {
        "name": "Proxy Inference Engine",
        "base_url": f"{ADDRESS}/v1",
        "wire_api": "responses",
    }
