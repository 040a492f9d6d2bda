"""The examples of docs/completions.md are run, in their order."""

import json
import shutil
import subprocess

import pytest

from tests.api.pages import ADDRESS, blocks, run_python
from tests.api.running import Running

PAGE = "completions.md"


def test_python(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    def said() -> None:
        assert capsys.readouterr().out

    assert len(blocks(PAGE, "python")) == 5
    names = run_python(PAGE, server.url, said)
    names["client"].close()  # type: ignore[attr-defined]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(server: Running) -> None:
    (command,) = blocks(PAGE, "sh")
    words = ["sh", "-c", command.replace(ADDRESS, server.url)]
    answer = json.loads(subprocess.run(words, capture_output=True, timeout=60, check=True).stdout)
    assert answer["object"] == "text_completion" and answer["choices"][0]["text"]
