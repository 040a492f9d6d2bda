"""The examples of docs/responses.md are run, in their order."""

import json
import subprocess
import tomllib

import pytest

from tests.api.pages import ADDRESS, blocks, run_python
from tests.api.running import Running

PAGE = "responses.md"


def test_python(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    def said() -> None:
        assert capsys.readouterr().out

    assert len(blocks(PAGE, "python")) == 8
    names = run_python(PAGE, server.url, said)
    names["client"].close()  # type: ignore[attr-defined]


def test_curl(server: Running) -> None:
    (command,) = blocks(PAGE, "sh")
    try:
        words = ["sh", "-c", command.replace(ADDRESS, server.url)]
        run = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        pytest.skip("there is no shell")
    if run.returncode == 127:
        pytest.skip("there is no curl")
    assert json.loads(run.stdout)["object"] == "response", run.stderr


def test_codex_speaks_responses() -> None:
    (config,) = blocks(PAGE, "toml")
    assert tomllib.loads(config)["model_providers"]["pie"] == {
        "name": "Proxy Inference Engine",
        "base_url": f"{ADDRESS}/v1",
        "wire_api": "responses",
    }
