"""The examples of docs/chat.md are run, in their order."""

import shutil
import subprocess
import tomllib

import pytest

from proxy_inference_engine.config import Config
from tests.api.pages import ADDRESS, blocks, run_python
from tests.api.running import Running, running

PAGE = "chat.md"


def test_the_python_examples_run(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    names = run_python(PAGE, server.url)
    assert len(capsys.readouterr().out.splitlines()) > 5
    names["client"].close()  # type: ignore[attr-defined]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("block", blocks(PAGE, "sh"))
def test_the_curl_examples_run(server: Running, block: str) -> None:
    done = subprocess.run(["sh", "-c", block.replace(ADDRESS, server.url)], capture_output=True, timeout=60, check=True)
    assert b'"object":"' in done.stdout


def test_the_configuration_is_one() -> None:
    (block,) = blocks(PAGE, "toml")
    with running(config=Config(**tomllib.loads(block))) as live, live.http() as http:
        assert http.get("/v1/models/gpt-5").status_code == http.get("/v1/models/claude-3").status_code == 200
        assert len(http.get("/v1/models").json()["data"]) == 2
