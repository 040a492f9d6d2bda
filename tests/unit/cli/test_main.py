"""The `pie` command: arguments, plain errors, the port."""

import io
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from proxy_inference_engine import __version__
from proxy_inference_engine.cli import main
from proxy_inference_engine.cli.banner import url
from proxy_inference_engine.cli.flags import build_parser, parse
from proxy_inference_engine.cli.port import listen
from proxy_inference_engine.errors import StartupError

MAX_FLAGS = 22


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("PIE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIE_SERVER", "none")


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    """A file that passes for a model until somebody loads it."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return path


def complaint(arguments: Sequence[str], capsys: pytest.CaptureFixture[str], code: int = 1) -> str:
    """The one line that a command failed with."""
    try:
        result = main(arguments)
    except SystemExit as leaving:
        result = int(leaving.code or 0)
    captured = capsys.readouterr()
    assert result == code
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("pie: ")
    return captured.err


def test_version_loads_nothing() -> None:
    code = (
        "import sys; from proxy_inference_engine.cli import main; code = main(['--version']);"
        "assert not {'pydantic', 'numpy', 'starlette', 'asyncio'} & set(sys.modules); sys.exit(code)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (answer.stdout, answer.stderr, answer.returncode) == (f"pie {__version__}\n", "", 0)


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "proxy_inference_engine", "serve", "--port", "x"]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 1
    assert answer.stderr.startswith("pie: --port: ")
    assert answer.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["dance"],
        ["serve", "--colour", "red"],
        ["serve", "--port"],
        ["serve", "--por", "1"],
        ["chat", "--port", "1"],
        ["serve", "--server", "http://127.0.0.1:1"],
        ["launch", "emacs"],
        ["bench", "--tokens", "many"],
        ["rm"],
    ],
)
def test_wrong_usage_is_one_line_and_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "--help" in complaint(arguments, capsys, code=2)


@pytest.mark.parametrize(("typed", "said"), [("chatt", "did you mean chat?"), ("dance", "no command 'dance' (see")])
def test_a_command_that_there_is_not(typed: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in complaint([typed], capsys, code=2)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("serve --data-dir x", "set PIE_DATA_DIR, or data_dir in pie.toml (see `pie serve --help`)"),
        ("chat --port=1", "set PIE_PORT, or port in pie.toml (see `pie chat --help`)"),
        ("ls --jsn", "did you mean --json? (see `pie ls --help`)"),
        ("run hello --max-tokens 3", "`pie run` has no flag --max-tokens: say --set max_tokens=VALUE (see"),
        ("ps smollm2", "`pie ps` does not take 'smollm2' (see"),
        ("serve --colour red", "`pie serve` has no flag --colour (see"),
        ("serve --server http://127.0.0.1:1", "`pie serve` has no flag --server (see"),
        ("key me --data-dir x", "`pie key` has no flag --data-dir (see"),
        ("--colour", "there is no flag --colour (see `pie --help`)"),
    ],
)
def test_a_flag_that_there_is_not(typed: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in complaint(typed.split(), capsys, code=2)


def test_help_stays_short(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    text = capsys.readouterr().out
    flags = re.findall(r"^  (?:-h, )?(--[a-z-]+)", text, re.MULTILINE)
    assert {"--host", "--port", "--model", "--context", "--slots", "--threads", "--gpu-layers"} <= set(flags)
    assert len(flags) <= MAX_FLAGS
    assert "api-keys" not in text


def test_only_given_flags_are_settings() -> None:
    assert vars(parse(["serve", "--port", "1", "--no-exact"])) == {"command": "serve", "port": "1", "exact": False}
    assert vars(parse(["run", "what", "is", "it", "--exact"])) == {
        "command": "run",
        "question": ["what", "is", "it"],
        "exact": True,
    }
    assert vars(parse(["pull", "owner/model:Q8_0"])) == {"command": "pull", "model": "owner/model:Q8_0"}
    assert vars(parse(["chat", "--offline"])) == {"command": "chat", "offline": True}
    assert vars(parse(["run", "--set", "seed=1", "--set", "top_k=2", "--json"])) == {
        "command": "run",
        "settings": ["seed=1", "top_k=2"],
        "as_json": True,
    }
    assert build_parser().prog == "pie"


@pytest.mark.parametrize("command", ["serve", "chat", "run"])
def test_bad_settings(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--threads" in complaint([command, "--threads", "0"], capsys)
    assert "missing.toml" in complaint([command, "--config", "missing.toml"], capsys)
    monkeypatch.setenv("PIE_SLOT", "1")
    assert "PIE_SLOTS" in complaint([command], capsys)


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["chat"], ["run", "hello"]])
def test_missing_model(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such file" in complaint([*command, "--model", "missing.gguf"], capsys)


def test_no_open_host_without_a_key(gguf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = complaint(["serve", "--host", "0.0.0.0", "--port", "0", "--model", str(gguf)], capsys)
    assert "--api-key-file" in message


def test_a_busy_port_is_noticed_before_the_model_is_loaded(gguf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        message = complaint(["serve", "--port", str(port), "--model", str(gguf)], capsys)
    assert message == (
        f"pie: port {port} on 127.0.0.1 is in use: stop the other program or choose another port with --port\n"
    )


def test_run_needs_a_question(gguf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("  \n"))
    assert "question" in complaint(["run", "--model", str(gguf)], capsys)


def test_listen() -> None:
    with listen("127.0.0.1", 0) as sock, socket.create_connection(sock.getsockname()):
        assert sock.family == socket.AF_INET
    with listen("localhost", 0) as sock:
        assert sock.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["203.0.113.7", "a..b", "x" * 64])
def test_listen_where_it_cannot(host: str) -> None:
    with pytest.raises(StartupError, match=re.escape(host)):
        listen(host, 0)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("pie.example", "http://pie.example:80"),
    ],
)
def test_url(host: str, expected: str) -> None:
    assert url(host, 80) == expected
