"""The examples of docs/vision.md are run, in their order, over images; what it says of limits is true."""

import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.runners.fake import IMAGE_TEMPLATE, MARKER, FakeImageEncoder, FakeRunner
from tests.api.pages import ADDRESS, DOCS, blocks, run_python
from tests.api.running import Running, running

PAGE = "vision.md"


@pytest.fixture(scope="module")
def image_server() -> Iterator[Running]:
    with running(
        FakeRunner(chat_template=IMAGE_TEMPLATE, defined_tokens=(MARKER,), image_encoder=FakeImageEncoder())
    ) as live:
        yield live


def test_the_python_examples_run(image_server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    names = run_python(PAGE, image_server.url)
    assert len(re.findall(r" \d+$", capsys.readouterr().out, re.MULTILINE)) == 3
    for name in ("client", "claude"):
        names[name].close()  # type: ignore[attr-defined]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_example_runs(image_server: Running) -> None:
    [block] = blocks(PAGE, "sh")
    command = ["sh", "-c", block.replace(ADDRESS, image_server.url)]
    assert b'"object":"' in subprocess.run(command, capture_output=True, timeout=60, check=True).stdout


def test_the_limits_are_the_defaults() -> None:
    fields = Config.model_fields
    text = (DOCS / PAGE).read_text()
    assert f"| {fields['max_images'].default}; with those of earlier turns eight times that | `max_images`" in text
    assert f"| {fields['max_image_bytes'].default // 1024**2} MiB; all" in text
    assert f"| {fields['max_image_pixels'].default // 10**6} million; all" in text
    assert f"| {fields['image_timeout_seconds'].default:.0f} s | `image_timeout_seconds`" in text
