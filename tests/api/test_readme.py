"""The examples of the README that need a server are run."""

import shutil
import subprocess

import pytest

from tests.api.pages import ADDRESS, blocks, run_python
from tests.api.running import Running

PAGE = "../README.md"


@pytest.mark.model
def test_the_python_examples_run(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    """A client of the server, and the engine in a program, with the bundled model."""
    printed: list[str] = []
    names = run_python(PAGE, server.url, after_each=lambda: printed.append(capsys.readouterr().out))
    for name in ("client", "engine"):
        names[name].close()  # type: ignore[attr-defined]
    assert len(printed) == 2 and all(map(str.strip, printed))


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_example_runs(server: Running) -> None:
    (block,) = blocks(PAGE, "sh")
    done = subprocess.run(["sh", "-c", block.replace(ADDRESS, server.url)], capture_output=True, timeout=60, check=True)
    assert b'"object":"chat.completion"' in done.stdout
