"""The examples of the README that need a server are run."""

import shutil
import subprocess

import pytest

from tests.api.pages import ADDRESS, blocks, run_python
from tests.api.running import Running

PAGE = "../README.md"


def test_the_python_example_runs(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    names = run_python(PAGE, server.url)
    assert capsys.readouterr().out.strip()
    names["client"].close()  # type: ignore[attr-defined]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_example_runs(server: Running) -> None:
    (block,) = blocks(PAGE, "sh")
    done = subprocess.run(["sh", "-c", block.replace(ADDRESS, server.url)], capture_output=True, timeout=60, check=True)
    assert b'"object":"chat.completion"' in done.stdout
