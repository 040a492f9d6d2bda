"""The `pie` command: arguments, plain errors, the port, the banner, and a conversation over the fake model."""

import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from proxy_inference_engine import __version__
from proxy_inference_engine.cli import main
from proxy_inference_engine.cli.banner import Banner, url
from proxy_inference_engine.cli.chat import talk
from proxy_inference_engine.cli.conversation import Conversation
from proxy_inference_engine.cli.flags import build_parser, parse
from proxy_inference_engine.cli.serve import listen
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker, WorkerStream
from proxy_inference_engine.errors import ContextLengthExceeded, EngineFailure, StartupError
from proxy_inference_engine.formats import by_name
from proxy_inference_engine.interaction import Role
from proxy_inference_engine.models.profile import Profile
from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.types import Request

MAX_FLAGS = 20


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("PIE_"):
            monkeypatch.delenv(name)


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
        [],
        ["dance"],
        ["serve", "--colour", "red"],
        ["serve", "--port"],
        ["serve", "--por", "1"],
        ["chat", "--port", "1"],
    ],
)
def test_wrong_usage_is_one_line_and_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "--help" in complaint(arguments, capsys, code=2)


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


_LANES = (Lane(16, 2048), Lane(1, 8192), Lane(1, 8192))


@pytest.mark.parametrize("has_keys", [False, True])
def test_banner_has_the_facts_and_a_curl_line(has_keys: bool) -> None:
    banner = Banner("it's", "135M Q4_1", 8192, _LANES, 1 << 15, 512 << 20, "http://127.0.0.1:8000", has_keys)
    text = banner.render()
    for fact in (
        "it's (135M Q4_1)",
        "8,192 tokens",
        "16 sequences of 2,048",
        "2 longer ones",
        "1.5 GiB",
        "512 MiB",
        "http://127.0.0.1:8000/v1",
    ):
        assert fact in text
    curl = shlex.split(next(line for line in text.splitlines() if line.strip().startswith("curl")))
    assert curl[1] == "http://127.0.0.1:8000/v1/chat/completions"
    body = json.loads(curl[curl.index("-d") + 1])
    assert body["model"] == "it's"
    assert body["messages"][0]["role"] == "user"
    assert ("Authorization: Bearer $KEY" in curl) == has_keys


def test_banner_without_cache_and_long_lanes() -> None:
    text = Banner("m", "", 8192, _LANES[:1], 1 << 15, 0, "http://x", False).render()
    assert "1 GiB for running sequences, no prefix cache" in text
    assert "longer" not in text
    assert "model    m\n" in text


@contextmanager
def fake_conversation(
    *,
    end_bias: float = 4.0,
    on_forward: Callable[[Sequence[Row]], None] | None = None,
    lanes: Sequence[Lane] = (Lane(1, 4096),),
) -> Iterator[Conversation]:
    runner = FakeRunner(lanes=lanes, end_bias=end_bias, on_forward=on_forward)
    worker = Worker(StepEngine(runner, max_cache_bytes=1 << 20))
    worker.start()
    try:
        # Greedy: the seed is random, and a random answer may be empty.
        yield Conversation(worker, by_name("chatml"), Profile(temperature=0.0))
    finally:
        worker.stop()


async def answer(conversation: Conversation, question: str) -> str:
    async with aclosing(conversation.ask(question)) as pieces:
        return "".join([text async for text, _ in pieces])


async def test_a_conversation_remembers_its_turns() -> None:
    with fake_conversation() as conversation:
        first = await answer(conversation, "hello")
        second = await answer(conversation, "and now?")
        assert [(turn.role, turn.text) for turn in conversation.turns] == [
            (Role.USER, "hello"),
            (Role.ASSISTANT, first),
            (Role.USER, "and now?"),
            (Role.ASSISTANT, second),
        ]
        conversation.clear()
        assert conversation.turns == []


@pytest.mark.parametrize(
    ("profile", "penalty"),
    [(Profile(), 1.0), (Profile(terminal_penalty=1.1), 1.1), (Profile(repetition_penalty=1.3), 1.3)],
)
async def test_a_terminal_has_a_penalty_of_its_own(
    profile: Profile, penalty: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(StepEngine(FakeRunner(), max_cache_bytes=0))
    worker.start()
    submitted: list[Request] = []
    submit = worker.submit

    def note(request: Request) -> WorkerStream:
        submitted.append(request)
        return submit(request)

    monkeypatch.setattr(worker, "submit", note)
    try:
        await answer(Conversation(worker, by_name("chatml"), profile), "hello")
    finally:
        worker.stop()
    assert [request.sampling.repetition_penalty for request in submitted] == [penalty]


async def test_leaving_an_answer_keeps_what_came_and_frees_the_engine() -> None:
    with fake_conversation(end_bias=-100.0) as conversation:
        async with aclosing(conversation.ask("hello")) as pieces:
            first, _ = await anext(pieces)
        assert [turn.text for turn in conversation.turns] == ["hello", first]
        # The one slot is free again, or this would wait for ever.
        async with aclosing(conversation.ask("again")) as pieces:
            assert await anext(pieces)


async def test_a_full_context_is_refused_and_forgotten() -> None:
    with fake_conversation(lanes=(Lane(1, 64),)) as conversation:
        with pytest.raises(ContextLengthExceeded, match="64 fit"):
            await answer(conversation, "x" * 100)
        assert conversation.turns == []


async def test_a_failing_engine_is_an_error() -> None:
    def fail(rows: Sequence[Row]) -> None:
        raise RuntimeError("no forward")

    with fake_conversation(on_forward=fail) as conversation:
        with pytest.raises(EngineFailure):
            await answer(conversation, "hello")
        assert conversation.turns == []


def test_chat_reads_lines_and_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("/help\nhello\n\n/clear\nagain\n/exit\nnever\n"))
    with fake_conversation() as conversation:
        talk(conversation)
        assert [turn.text for turn in conversation.turns[::2]] == ["again"]
        assert "/clear forgets" in capsys.readouterr().out


def test_chat_ends_with_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello"))
    with fake_conversation() as conversation:
        talk(conversation)
        assert len(conversation.turns) == 2


def test_ctrl_c_stops_the_answer_and_not_the_chat(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first answer would never end; the signal comes while it streams."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n/clear\n"))
    steps = iter(range(1_000_000))

    def interrupt(rows: Sequence[Row]) -> None:
        if next(steps) == 20:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    # A shell starts background jobs with SIGINT ignored, and Python leaves it so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with fake_conversation(end_bias=-100.0, on_forward=interrupt, lanes=(Lane(1, 100_000),)) as conversation:
            talk(conversation)
            assert conversation.turns == []
    finally:
        signal.signal(signal.SIGINT, before)
    assert "(stopped)" in capsys.readouterr().err
