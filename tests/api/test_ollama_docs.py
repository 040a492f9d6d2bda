"""The examples of docs/ollama.md, run as they stand, against a server of their own."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from proxy_inference_engine.runners.base import Logits, Row
from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.clients import OLLAMA, run
from tests.api.pages import ADDRESS, blocks
from tests.api.running import Running, running

PAGE = "ollama.md"


class Brief(FakeRunner):
    """Closes what it opens."""

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        outputs = super().forward(rows)
        for logits in outputs:
            logits[:, ord('"')] += 6
        return outputs


@pytest.fixture(scope="module")
def live() -> Iterator[Running]:
    with running(Brief()) as server:
        yield server
        server.wait_idle()


def test_the_python_examples_run(live: Running, tmp_path: Path) -> None:
    ollama = pytest.importorskip("ollama")
    program = "".join(blocks(PAGE, "python")).replace(ADDRESS, live.url)
    printed = run(
        [sys.executable, "-c", program], tmp_path, tmp_path, {"PYTHONPATH": str(Path(ollama.__file__).parents[1])}
    )
    assert re.search(r"city='(Paris|Rome)' is_sunny=(True|False)", printed)


def test_the_javascript_example_runs(live: Running, tmp_path: Path) -> None:
    (script,) = (block.replace(ADDRESS, live.url) for block in blocks(PAGE, "js"))
    printed = run(["node", "--input-type=module", "--eval", script], OLLAMA.folder(), tmp_path, {})
    assert printed.splitlines()[-1].endswith("2 fake [ 'completion', 'tools' ]")


def test_the_command_works(live: Running) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    (block,) = blocks(PAGE, "sh")
    words = shlex.split(block.replace(ADDRESS, live.url))
    done = subprocess.run([*words, "--silent", "--max-time", "60"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["done"]
