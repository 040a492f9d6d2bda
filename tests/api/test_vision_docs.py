"""The examples of docs/vision.md are run, in their order, by a model with eyes; what it says of limits is true."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.runners.fake_eyes import MARKER, VISION_TEMPLATE, FakeEyes
from tests.api.running import Running, running

PAGE = (Path(__file__).parents[2] / "docs" / "vision.md").read_text()
ADDRESS = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def seeing() -> Iterator[Running]:
    with running(FakeRunner(chat_template=VISION_TEMPLATE, defined_tokens=(MARKER,), eyes=FakeEyes())) as live:
        yield live


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert found
    return found


def test_the_python_examples_run(seeing: Running, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block.replace(ADDRESS, seeing.url), "docs/vision.md", "exec"), names)
    assert len(re.findall(r" \d+$", capsys.readouterr().out, re.MULTILINE)) == 3
    for name in ("client", "claude"):
        names[name].close()  # type: ignore[attr-defined]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_example_runs(seeing: Running) -> None:
    [block] = blocks("sh")
    command = ["sh", "-c", block.replace(ADDRESS, seeing.url)]
    assert b'"object":"' in subprocess.run(command, capture_output=True, timeout=60, check=True).stdout


def test_the_limits_are_the_defaults() -> None:
    fields = Config.model_fields
    assert f"| {fields['max_images'].default}; with those of earlier turns eight times that | `max_images`" in PAGE
    assert f"| {fields['max_image_bytes'].default // 1024**2} MiB; all" in PAGE
    assert f"| {fields['max_image_pixels'].default // 10**6} million; all" in PAGE
    assert f"| {fields['image_timeout_seconds'].default:.0f} s | `image_timeout_seconds`" in PAGE
