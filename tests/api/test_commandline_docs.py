"""The examples of docs/commandline.md are run, by a shell, beside a server over the fake model."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from proxy_inference_engine.cli.commands import COMMANDS
from proxy_inference_engine.cli.talk.slash import EXIT, RETRY, SLASH_COMMANDS
from proxy_inference_engine.runners.fake import IMAGE_TEMPLATE, MARKER, FakeImageEncoder, FakeRunner
from tests.api.pages import DOCS, blocks
from tests.api.running import running
from tests.images import plain
from tests.terminal import PIE, environment

PAGE = "commandline.md"


def test_the_examples_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("A cat sat on a mat.")
    (tmp_path / "color.schema.json").write_text('{"enum": ["red", "blue"]}')
    (tmp_path / "photo.png").write_bytes(plain(32, 32))
    program = tmp_path / "bin" / "pie"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {" ".join(PIE)} "$@"\n')
    program.chmod(0o755)
    runner = FakeRunner(chat_template=IMAGE_TEMPLATE, defined_tokens=(MARKER,), image_encoder=FakeImageEncoder())
    with running(runner) as live:
        variables = environment(tmp_path, PIE_SERVER=live.url)
        variables["PATH"] = f"{program.parent}{os.pathsep}{variables['PATH']}"
        script = "set -e\n" + "\n".join(blocks(PAGE, "bash"))
        done = subprocess.run(
            ["sh", "-c", script], cwd=tmp_path, env=variables, capture_output=True, encoding="utf-8", timeout=120
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert any(line in ('"red"', '"blue"') for line in done.stdout.splitlines())
    assert any(json.loads(line)["model"] == "fake" for line in done.stdout.splitlines() if line.startswith('{"model"'))
    assert "fits" in done.stdout


@pytest.mark.parametrize("name", [*(f"`pie {command.name}" for command in COMMANDS), *SLASH_COMMANDS, RETRY, EXIT[0]])
def test_every_command_is_told_of(name: str) -> None:
    if name != "/help":
        assert name in (DOCS / PAGE).read_text()
