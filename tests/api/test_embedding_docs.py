"""The examples of docs/embeddings.md, run as they stand but for the address."""

import io
import json
import re
import shutil
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import Running, running

PAGE = (Path(__file__).parents[2] / "docs" / "embeddings.md").read_text()
ADDRESS = "http://127.0.0.1:8000"


def examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def shell(server: Running, command: str) -> object:
    text = command.replace(ADDRESS, server.url).replace("curl ", "curl --silent --fail ", 1)
    return json.loads(subprocess.run(["sh", "-c", text], check=True, capture_output=True, timeout=60).stdout)


def test_python(server: Running) -> None:
    (text,) = examples("python")
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(text.replace(ADDRESS, server.url), {})
    assert len(printed.getvalue().splitlines()) == 2


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl(server: Running) -> None:
    embeddings, rerank = examples("sh")
    answer = shell(server, embeddings)
    assert isinstance(answer, dict) and [item["index"] for item in answer["data"]] == [0, 1]
    with running(FakeRunner(pooling="rank")) as ranker:
        found = shell(ranker, rerank)
    (written,) = map(json.loads, examples("json"))
    assert isinstance(found, dict) and found.keys() == written.keys()
    assert [result.keys() for result in found["results"]] == [result.keys() for result in written["results"]]
