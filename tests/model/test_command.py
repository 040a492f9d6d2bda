"""`pie serve`, `pie run` and `pie chat` as a user starts them: programs of their own, over a tiny model."""

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.model.gguf_files import write_llama
from tests.polling import HANG_S
from tests.terminal import CTRL_C, CTRL_D, ENTER, environment, terminal

SETTINGS = ("--threads", "1", "--context", "256", "--log-level", "error")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Greedy by its own wish, so that it always says the same."""
    folder = tmp_path_factory.mktemp("tiny")
    return write_llama(folder / "tiny.gguf", facts={"general.sampling.temp": 0.0})


def words(command: str, *rest: str, model: Path) -> list[str]:
    return [sys.executable, "-m", "proxy_inference_engine", command, *rest, "--model", str(model), *SETTINGS]


def say(line: list[str], home: Path, text: str | None = None) -> str:
    answer = subprocess.run(
        line, cwd=home, env=environment(home), input=text, capture_output=True, encoding="utf-8", timeout=60
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    return answer.stdout


@contextmanager
def serving(model: Path, home: Path, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The program, and what it printed until it was ready."""
    line = words("serve", "--port", "0", "--kv-memory", "1MiB", model=model)
    process = subprocess.Popen(
        line,
        cwd=home,
        env={**environment(home), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stdout is not None
    try:
        printed = ""
        while "Ctrl-C" not in printed:
            read = process.stdout.readline()
            assert read, process.stderr and process.stderr.read()
            printed += read
        yield process, printed
    finally:
        process.kill()
        process.communicate()


def test_run_answers_once(model: Path, tmp_path: Path) -> None:
    answer = say(words("run", "hello", "there", model=model), tmp_path)
    assert answer.endswith("\n") and len(answer) > 2
    assert say(words("run", "-", model=model), tmp_path, text="hello there") == answer
    assert say(words("run", "hello here", model=model), tmp_path) != answer


def test_chat_talks_until_its_input_ends(model: Path, tmp_path: Path) -> None:
    first = say(words("run", "hello", model=model), tmp_path)
    chat = say(words("chat", model=model), tmp_path, text="hello\n/clear\nhello\n")
    assert chat == f"{first}Forgotten.\n{first}"


def test_a_chat_in_a_terminal_loads_the_model_itself(model: Path, tmp_path: Path) -> None:
    """Ctrl-C stops an answer; the next question is answered; what is loaded anew goes on with the conversation."""
    schema = tmp_path / "schema.json"
    schema.write_text('{"enum": ["yes", "no"]}')
    line = words("chat", "--set", "ignore_eos=true", model=model)
    with terminal(line, tmp_path, environment(tmp_path)) as screen:
        assert "tiny, in this process." in screen.wait_for(">>> ")
        screen.type("hello", ENTER)
        screen.wait_for("hello\n")  # Ctrl-C throws away what was typed and not yet read
        screen.type(CTRL_C)
        screen.wait_for(">>> ")
        screen.type("/set ignore_eos off", ENTER)
        screen.wait_for(">>> ")
        screen.type("/schema schema.json", ENTER, "well?", ENTER)
        screen.wait_for("ends that.")
        assert re.search('"(yes|no)"', screen.wait_for(">>> ") + screen.wait_for(">>> "))
        screen.type(f"/model {model}", ENTER)
        screen.wait_for("Now tiny, in this process.")
        screen.type("/model missing.gguf", ENTER)
        screen.wait_for("no such file")
        screen.type("/retry", ENTER)
        assert re.search('"(yes|no)"', screen.wait_for(">>> ") + screen.wait_for(">>> "))
        screen.type(CTRL_D)
        assert screen.wait_end() == 0


def test_serve_says_where_to_go_and_the_curl_line_works(model: Path, tmp_path: Path) -> None:
    with serving(model, tmp_path) as (process, printed):
        assert re.search(r"memory +\S+ MiB for running sequences, .* for the prefix cache", printed)
        curl = shlex.split("curl " + printed.partition("  curl ")[2].partition("\n\n")[0])
        url, body = curl[1], json.loads(curl[curl.index("-d") + 1])
        assert httpx.get(url.replace("/v1/chat/completions", "/ready"), timeout=HANG_S).status_code == 200
        answer = httpx.post(url, json=body, timeout=HANG_S)
        assert answer.status_code == 200 and answer.json()["choices"][0]["message"]["role"] == "assistant"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=HANG_S)
        assert (process.returncode, errors) == (0, "")


def test_settings_come_from_every_place(model: Path, tmp_path: Path) -> None:
    (tmp_path / "pie.toml").write_text("drain_seconds = 1\n[aliases]\n'gpt-*' = 'default'\n")
    (tmp_path / ".env").write_text("PIE_API_KEYS=anna:from-dotenv\n")
    with serving(model, tmp_path, PIE_SLOTS="3") as (_, printed):
        assert "3 sequences of 256 tokens" in printed and "needs an API key" in printed
        url = re.findall(r"http://\S+/v1", printed)[0]
        assert httpx.get(f"{url}/models", timeout=HANG_S).status_code == 401
        assert httpx.get(f"{url}/models/gpt-4", headers={"x-api-key": "from-dotenv"}, timeout=HANG_S).status_code == 200


# Ctrl-C when a function is called for the first time since the module is there.
_STRUCK = """
import os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts jobs in the background with it ignored
module, function = sys.argv.pop(1), sys.argv.pop(1)

def on_call(frame, event, _):
    if event == "call" and frame.f_code.co_name == function and module in sys.modules:
        sys.setprofile(None)
        os.write(1, b"struck")
        os.kill(os.getpid(), signal.SIGINT)

sys.setprofile(on_call)
runpy.run_module("proxy_inference_engine", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("module", "function"),
    [
        ("proxy_inference_engine.cli", "<module>"),  # the first that it imports
        ("proxy_inference_engine.config", "<module>"),
        ("proxy_inference_engine.config", "cb"),  # where Python loses it
        ("proxy_inference_engine.models.load.engine", "result"),  # the weights, which another thread reads
        ("proxy_inference_engine.cli.talk", "speak"),
    ],
)
def test_ctrl_c_ends_a_start(model: Path, tmp_path: Path, module: str, function: str) -> None:
    """Whatever it is busy with: imports, weights, or the first words."""
    line = [sys.executable, "-c", _STRUCK, module, function, *words("run", "Hello", model=model)[3:]]
    done = subprocess.run(line, cwd=tmp_path, env=environment(tmp_path), capture_output=True, timeout=HANG_S)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, b"struck", b"")


def test_what_is_no_text_is_one_plain_line(model: Path, tmp_path: Path) -> None:
    for line, given in ((words("run", model=model), b"\xff\xfe"), (words("run", "a\udcffb", model=model), b"")):
        done = subprocess.run(
            line, cwd=tmp_path, env=environment(tmp_path), input=given, capture_output=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (1, b"pie: the input is not UTF-8 text\n")


def test_a_chat_template_that_fails_is_one_plain_line(model: Path, tmp_path: Path) -> None:
    """Before anything says that the server is there."""
    broken = tmp_path / "broken.jinja"
    broken.write_text("{{ raise_exception('No.') }}", encoding="utf-8")
    line = words("serve", "--port", "0", "--kv-memory", "1MiB", model=model)
    variables = {**environment(tmp_path), "PIE_CHAT_TEMPLATE": str(broken)}
    answer = subprocess.run(line, cwd=tmp_path, env=variables, capture_output=True, encoding="utf-8", timeout=60)
    assert (answer.returncode, answer.stdout) == (1, "")
    (complaint,) = answer.stderr.splitlines()
    assert "the chat template fails: No. Set chat_template" in complaint
