"""The commands as a person runs them: in a terminal, beside a real server over the fake model."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import pytest

from proxy_inference_engine.cli import main
from proxy_inference_engine.cli.choices import program
from proxy_inference_engine.cli.commands import COMMANDS
from proxy_inference_engine.cli.library import faster
from proxy_inference_engine.config import Config
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.runners.llama_cpp.library import start
from tests.api.pools import FakeLoader, pool_server
from tests.api.running import Running, running
from tests.api.writing import Writer, call
from tests.images import plain
from tests.polling import HANG_S, wait_until
from tests.terminal import ALT_ENTER, CTRL_C, CTRL_D, ENTER, PASTE, PIE, TAB, UP, environment, terminal
from tests.unit.engine.threads import Gate

PROMPT = ">>> "
KEYS = Config(api_keys="anna:sk-anna,root:sk-root admin", drain_seconds=0.2)  # type: ignore[arg-type]  # parsed


@pytest.fixture(scope="module")
def talker() -> Iterator[Running]:
    """A model that says what was written down for it, turn by turn."""
    with running(Writer(["Hello, I am here.", "Still here.", "Third."])) as live:
        yield live


class Pie:
    """The command where nobody looks on: in this process, which is faster, with settings and files of its own."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._home, self._monkeypatch, self._capsys = home, monkeypatch, capsys

    def __call__(self, *words: str, server: str = "none", code: int = 0, text: str = "", **variables: str) -> str:
        """What it prints."""
        with self._monkeypatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("PIE_")]:
                patch.delenv(name)
            for name, value in {"HOME": str(self._home), "PIE_SERVER": server, **variables}.items():
                patch.setenv(name, value)
            patch.chdir(self._home)
            patch.setattr(sys, "stdin", io.StringIO(text))
            returned = main(words)
        printed = self._capsys.readouterr()
        assert returned == code, printed.err
        assert "\x1b" not in printed.out + printed.err, "no colours where nobody looks on"
        return printed.out + printed.err


@pytest.fixture
def pie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pie:
    return Pie(tmp_path, monkeypatch, capsys)


def test_a_chat_with_a_running_server(talker: Running, tmp_path: Path) -> None:
    """No second copy is loaded: the answers are the server's, and so are the counts."""
    with terminal([*PIE, "chat"], tmp_path, environment(tmp_path, PIE_SERVER=talker.url)) as screen:
        assert f"fake, on {talker.url}. /help lists" in screen.wait_for(PROMPT)
        screen.type("Who is there?", ENTER)
        assert "\nHello, I am here.\n" in screen.wait_for(PROMPT)
        screen.type("one", ALT_ENTER, "two", ENTER)
        assert "Still here.\n" in screen.wait_for(PROMPT)
        screen.type(PASTE.format("three\rfour"), ENTER)
        assert "Third.\n" in screen.wait_for(PROMPT)
        screen.type("/sta", TAB, ENTER)
        stats = screen.wait_for(PROMPT)
        assert re.search(r"prompt +\d+ tokens, \d+ of them known", stats) and "answer" in stats
        screen.type("/mod", TAB, "fa", TAB, ENTER)
        assert "Now fake, on" in screen.wait_for(PROMPT)
        screen.type("/retry", ENTER)
        assert "Third." in screen.wait_for(PROMPT)
        screen.type(CTRL_D)
        assert screen.wait_end() == 0
    with terminal([*PIE, "chat"], tmp_path, environment(tmp_path, PIE_SERVER=talker.url)) as screen:
        screen.wait_for(PROMPT)
        screen.type(UP, UP, UP, UP, UP, ENTER)  # over /retry, /model, /stats and what was pasted
        assert screen.wait_for("Hello, I am here.").endswith("one\ntwo\nHello, I am here.")
        screen.wait_for(PROMPT)
        screen.type("/exit", ENTER)
        assert screen.wait_end() == 0
    history = tmp_path / ".local" / "share" / "proxy-inference-engine" / "chat_history"
    assert list(map(json.loads, history.read_text().splitlines()[1:3])) == ["one\ntwo", "three\nfour"]
    assert history.stat().st_mode & 0o777 == 0o600


def test_ctrl_c_stops_an_answer_on_the_server(tmp_path: Path) -> None:
    runner = FakeRunner(end_bias=-100.0, lanes=(Lane(1, 100_000),), step_seconds=lambda _: 0.002)
    with (
        running(runner) as live,
        terminal([*PIE, "chat"], tmp_path, environment(tmp_path, PIE_SERVER=live.url)) as screen,
    ):
        screen.wait_for(PROMPT)
        screen.type("go on for ever", ENTER)
        wait_until(lambda: live.stats.num_running)
        screen.wait_for("\n")
        screen.type(CTRL_C)
        screen.wait_for("(stopped)")
        live.wait_idle()
        screen.type("/clear", ENTER)
        screen.wait_for("Forgotten.")


def test_ctrl_c_ends_a_run(tmp_path: Path) -> None:
    runner = FakeRunner(end_bias=-100.0, lanes=(Lane(1, 100_000),), step_seconds=lambda _: 0.002)
    with (
        running(runner) as live,
        terminal([*PIE, "run", "go on"], tmp_path, environment(tmp_path, PIE_SERVER=live.url)) as screen,
    ):
        wait_until(lambda: live.stats.num_running)
        screen.type(CTRL_C)
        assert screen.wait_end() == 130
        assert "Traceback" not in screen.text
        live.wait_idle()


def test_colours_only_where_they_are_wanted(talker: Running, tmp_path: Path) -> None:
    for variables, has_color in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        settings = environment(tmp_path, **{"PIE_SERVER": talker.url, **variables})
        with terminal([*PIE, "ps"], tmp_path, settings) as screen:
            assert screen.wait_end() == 0
        assert ("\x1b[" in screen.seen) is has_color


def test_run_takes_stdin_a_schema_and_settings(server: Running, pie: Pie, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(
        '{"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}'
    )
    url = server.url
    plain = pie("run", "say", "it", "--set", "max_tokens=5", "--set", "seed=1", "--set", "ignore_eos=true", server=url)
    assert plain.endswith("\n") and plain.strip()
    same = pie(
        "run", "-", "--set", "max_tokens=5", "--set", "seed=1", "--set", "ignore_eos=true", text="say it", server=url
    )
    assert same == plain
    found = json.loads(pie("run", "well?", "--schema", "schema.json", server=url))
    assert found["ok"] in (True, False)
    whole = json.loads(pie("run", "well?", "--schema", "schema.json", "--json", server=url))
    assert whole["parsed"]["ok"] in (True, False) and whole["model"] == "fake" and whole["finish_reason"] == "stop"
    cut = pie("run", "well?", "--schema", "schema.json", "--set", "max_tokens=2", code=1, server=url)
    assert "pie: the answer was cut off" in cut
    assert "'temperature'" in pie("run", "well?", "--set", "temperature=9", code=1, server=url)
    assert "no option" in pie("run", "well?", "--set", "stream=true", code=1, server=url)


def test_what_is_wrong_with_a_picture_is_said_without_where_it_stood(server: Running, pie: Pie, tmp_path: Path) -> None:
    (tmp_path / "sea.png").write_bytes(plain(8, 8))
    told = pie("run", "--image", str(tmp_path / "sea.png"), "What is this?", server=server.url, code=1)
    assert told == "pie: this model takes no images.\n"


def test_a_server_that_is_named_has_to_answer(server: Running, pie: Pie) -> None:
    nowhere = "http://127.0.0.1:9"
    assert nowhere in pie("run", "well?", "--server", nowhere, code=1)
    assert "pie serve" in pie("ps", code=1)
    named = pie("run", "well?", "--server", server.url, "--model", "gpt-9", code=1)
    assert "no model 'gpt-9'; it has fake" in named


def test_the_server_at_host_and_port_is_found(server: Running, pie: Pie) -> None:
    port = str(server.address[1])
    said = pie("run", "well?", "--json", "--set", "max_tokens=2", server="", PIE_PORT=port)
    assert json.loads(said)["model"] == "fake"


def test_keys(pie: Pie) -> None:
    with running(config=KEYS) as live:
        url = live.url
        assert "PIE_CLIENT_KEY" in pie("run", "well?", code=1, server=url)
        assert pie("run", "well?", "--set", "max_tokens=2", PIE_CLIENT_KEY="sk-anna", server=url)
        assert "With an admin's key" in pie("ps", PIE_CLIENT_KEY="sk-anna", server=url)
        assert "No request runs." in pie("ps", PIE_CLIENT_KEY="sk-root", server=url)
        assert "No request runs." in pie("ps", PIE_API_KEYS="anna:sk-anna,root:sk-root admin", server=url)
        launched = pie("launch", "claude", PIE_CLIENT_KEY="sk-anna", server=url)
        assert "sk-anna" not in launched and "printenv PIE_CLIENT_KEY" in launched


def test_models_are_listed_and_stopped(pie: Pie) -> None:
    entries = [PoolEntry("first", Config()), PoolEntry("second", Config())]
    with pool_server(*entries) as served:
        url = served.live.url
        pie("run", "hi", "--model", "second", "--set", "max_tokens=2", server=url)
        listed = json.loads(pie("ps", "--json", server=url))
        assert {each["id"]: each["state"] for each in listed["models"]} == {"first": "unloaded", "second": "ready"}
        assert "Unloaded second" in pie("stop", "second", server=url)
        assert served.loader.log == ["second loaded", "second unloaded"]
        assert "no model 'third'" in pie("stop", "third", code=1, server=url)


def test_a_narrow_terminal_gets_fewer_columns_and_what_failed_below_them(pie: Pie, tmp_path: Path) -> None:
    gate, words, key = Gate(), {"prompt": "well?", "max_tokens": 2}, {"Authorization": "Bearer sk-1"}
    config = Config(api_keys="somebody-of-many-names:sk-1 admin")  # type: ignore[arg-type]  # parsed
    with running(gate.runner(), config) as live, live.http() as http, ThreadPoolExecutor(1) as threads:
        answer = threads.submit(http.post, "/v1/completions", json=words, headers=key)
        assert gate.is_entered.wait(HANG_S)
        variables = environment(tmp_path, PIE_SERVER=live.url, PIE_CLIENT_KEY="sk-1")
        with terminal([*PIE, "ps"], tmp_path, variables) as screen:
            assert screen.wait_end() == 0
        assert "/v1/completions" in pie("ps", server=live.url, PIE_CLIENT_KEY="sk-1")
        gate.open()
        assert answer.result(HANG_S).status_code == 200
    assert "ANSWER" in screen.text and "ROUTE" not in screen.text
    assert max(map(len, screen.text.splitlines())) <= 80
    with pool_server(PoolEntry("first", Config()), loader=FakeLoader(broken={"first"})) as served:
        pie("run", "hi", "--model", "first", server=served.live.url, code=1)
        listed = pie("ps", server=served.live.url).splitlines()
    assert listed[2].split() == ["first", "failed", "0", "0"] and "it is broken" in listed[3]


def test_stop_ends_the_server(pie: Pie, tmp_path: Path) -> None:
    """It asks only where somebody would notice, and whoever is being answered gets the rest."""
    gate = Gate()
    asked = {"prompt": "well?", "max_tokens": 20, "ignore_eos": True}
    config = Config(drain_seconds=HANG_S)
    with running(gate.runner(), config) as live, live.http() as http, ThreadPoolExecutor(1) as threads:
        answer = threads.submit(http.post, "/v1/completions", json=asked)
        assert gate.is_entered.wait(HANG_S)
        question = f"The server at {live.url} is answering one request. End it? [y/N] "
        variables = environment(tmp_path, PIE_SERVER=live.url)
        with terminal([*PIE, "stop"], tmp_path, variables) as screen:
            screen.wait_for(question)
            screen.type("n", ENTER)
            screen.wait_for("It goes on.")
            assert screen.wait_end() == 1
        assert "say --yes" in pie("stop", code=1, server=live.url)
        with terminal([*PIE, "stop"], tmp_path, variables) as screen:
            screen.wait_for(question)
            screen.type("y", ENTER)
            screen.wait_for(f"Stopped the server at {live.url}; it takes nothing new, and finishes one request first.")
            assert screen.wait_end() == 0
        gate.open()
        assert answer.result(HANG_S).json()["usage"]["completion_tokens"] == 20
        assert "does not answer" in pie("stop", code=1, server=live.url)


def test_stop_wants_an_admins_key(pie: Pie) -> None:
    with running(config=KEYS) as live:
        url = live.url
        assert "admin" in pie("stop", PIE_CLIENT_KEY="sk-anna", code=1, server=url)
        assert pie("ps", PIE_CLIENT_KEY="sk-anna", server=url)
        assert pie("stop", PIE_CLIENT_KEY="sk-root", server=url) == f"Stopped the server at {url}.\n"
        assert "does not answer" in pie("ps", PIE_CLIENT_KEY="sk-root", code=1, server=url)


def test_bench(server: Running, pie: Pie, tmp_path: Path) -> None:
    words = ("bench", "--clients", "1,3", "--tokens", "8", "--prompt-tokens", "10", "--svg", "b.svg")
    url = server.url
    result = json.loads(pie(*words, "--json", server=url).splitlines()[0])
    assert [(each["num_clients"], each["num_answers"]) for each in result["results"]] == [(1, 2), (3, 6)]
    assert all(each["tokens_per_second"] > 0 and each["ttft_ms"] > 0 for each in result["results"])
    drawn = ElementTree.parse(tmp_path / "b.svg").getroot()
    assert len(drawn.findall(".//{http://www.w3.org/2000/svg}circle")) == 2 * 3
    with terminal([*PIE, *words], tmp_path, environment(tmp_path, PIE_SERVER=server.url)) as screen:
        assert screen.wait_end() == 0
    assert "3 clients" in screen.text and "█" in screen.text and "] 100 %, 10 of 10" in screen.text
    assert "--clients" in pie("bench", "--clients", "0", code=1, server=url)
    few = ("bench", "--clients", "1", "--tokens", "4", "--prompt-tokens", "10", "--svg", "nowhere/b.svg")
    assert "TOKENS/S" in pie(*few, code=1, server=url), "what was measured is not lost with the picture"


@pytest.mark.parametrize(
    ("client", "path", "wanted"),
    [
        ("claude", ".claude/settings.local.json", '"ANTHROPIC_MODEL": "fake"'),
        ("codex", ".codex/config.toml", "model_context_window = 8192"),
        ("opencode", "opencode.json", '"context": 8192'),
    ],
)
def test_launch_writes_over_nothing(
    server: Running, pie: Pie, tmp_path: Path, client: str, path: str, wanted: str
) -> None:
    words, url, file = ("launch", client), server.url, tmp_path / path
    assert wanted in pie(*words, server=url) and not file.exists()
    assert "Written" in pie(*words, "--write", server=url)
    assert wanted in file.read_text() and server.url in file.read_text()
    assert "Written" in pie(*words, "--write", server=url), "the same once more changes nothing"
    file.write_text("mine")
    assert "--force" in pie(*words, "--write", code=1, server=url) and file.read_text() == "mine"
    pie(*words, "--write", "--force", server=url)
    assert wanted in file.read_text() and file.with_name(f"{file.name}.before").read_text() == "mine"
    assert json.loads(pie(*words, "--json", server=url))["written"] is False


def test_pie_alone_says_what_to_do_next(server: Running, pie: Pie, tmp_path: Path) -> None:
    with terminal(PIE, tmp_path, environment(tmp_path, PIE_SERVER=server.url)) as screen:
        assert screen.wait_end() == 0
    assert f"A server runs at {server.url} with fake." in screen.text and "chat" in screen.text
    alone = pie()
    assert "No server is running. 1 model here: bundled." in alone and "serve" in alone
    assert max(map(len, (screen.text + alone).splitlines())) <= 80, "a terminal would break it within a word"
    refused = pie(server="http://127.0.0.1:9")
    assert "does not answer" in refused and "serve" in refused


def test_what_to_do_next_is_broken_between_words_where_the_command_is_a_path(tmp_path: Path) -> None:
    """As after `make`, which puts nothing on the PATH."""
    command = tmp_path / ".venv" / "bin" / "pie"
    command.parent.mkdir(parents=True)
    command.write_text("import sys\nfrom proxy_inference_engine.cli import main\nsys.exit(main())\n")
    with terminal([sys.executable, ".venv/bin/pie"], tmp_path, environment(tmp_path)) as screen:
        assert screen.wait_end() == 0
    assert ".venv/bin/pie serve" in screen.text
    assert max(map(len, screen.text.splitlines())) <= 80


def test_lines_are_broken_between_words(pie: Pie, tmp_path: Path) -> None:
    with terminal([*PIE, "show", "bundled"], tmp_path, environment(tmp_path)) as screen:
        assert screen.wait_end() == 0
    lines = [line for line in screen.text.splitlines() if ".gguf" not in line]  # a path is not broken
    assert max(map(len, lines)) <= 80 and any(line.startswith(" " * 15) for line in lines)
    assert "at a time and a context of" in pie("show", "bundled"), "a script's lines are left alone"


@pytest.mark.parametrize(
    ("words", "indent"),
    [
        (["doctor"], 13),
        (["ps", "--server", "no address at all, and rather a long one at that"], 5),
        (["launch", "emacs"], 5),
    ],
)
def test_long_messages_go_on_below_their_beginning(words: list[str], indent: int, tmp_path: Path) -> None:
    with terminal([*PIE, *words], tmp_path, environment(tmp_path)) as screen:
        screen.wait_end()
    lines = [line for line in screen.text.splitlines() if str(tmp_path) not in line]
    assert max(map(len, lines)) <= 80
    assert any(re.match(rf" {{{indent}}}\S", line) for line in lines)


def test_the_doctor(server: Running, pie: Pie) -> None:
    found = json.loads(pie("doctor", "--json", server=server.url))
    by_subject = {each["subject"]: each for each in found}
    assert {"pie", "processor", "memory", "disk", "llama.cpp", "mlx", "gpu", "models", "server", "settings"} <= set(
        by_subject
    )
    assert server.url in by_subject["server"]["finding"] and "PIE_SERVER" in by_subject["settings"]["finding"]
    assert "✓ server" in pie("doctor", server=server.url)
    advice = faster(start(), program=program(), has_unused_gpu=False)
    assert by_subject["llama.cpp"]["advice"].split() == " ".join(advice).split(), "as the first screen says it"


def test_every_command_has_help(pie: Pie, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        pie("--help")
    text = capsys.readouterr().out
    assert all(f"    {command.name} " in text for command in COMMANDS)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_that_the_shell_takes(pie: Pie, shell: str, tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(pie("completion", shell))
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", script], check=True)


COMPLETIONS = {
    "pie dr": "",
    "pie do": "doctor",
    "pie launch c": "claude codex",
    "pie run --sch": "--schema",
    "pie serve --engine ": "auto llama.cpp mlx vllm",
    "pie run --schema exa": "example.json",
    "pie show bun": "bundled",
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(tmp_path: Path) -> None:
    (tmp_path / "example.json").write_text("{}")
    program = tmp_path / "bin" / "pie"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {" ".join(PIE)} "$@"\n')
    program.chmod(0o755)
    script = "source <(pie completion bash)\n"
    for line in COMPLETIONS:
        words = line.split(" ")
        script += f"COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}; _pie\n"
        script += 'echo "${COMPREPLY[*]}"\n'
    variables = environment(tmp_path)
    variables["PATH"] = f"{program.parent}{os.pathsep}{variables['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=variables, capture_output=True, encoding="utf-8", check=True
    )
    assert dict(zip(COMPLETIONS, done.stdout.splitlines(), strict=True)) == COMPLETIONS


def test_tools_of_a_history_are_shown(pie: Pie) -> None:
    """A model that calls a tool without being offered one is shown as it wrote."""
    with running(Writer([call("look", where="here")])) as live:
        said = pie("run", "well?", server=live.url)
    assert "look" in said


def test_a_model_that_is_being_loaded_shows_how_far_it_is(tmp_path: Path) -> None:
    gate = threading.Event()
    with pool_server(PoolEntry("first", Config()), loader=FakeLoader(gates={"first": gate})) as served:
        variables = environment(tmp_path, PIE_SERVER=served.live.url)
        with terminal([*PIE, "run", "hi", "--set", "max_tokens=3"], tmp_path, variables) as screen:
            screen.wait_for("loading first: 25 %")
            gate.set()
            assert screen.wait_end() == 0
    last_line = screen.seen.rpartition("\r\x1b[K")[2]
    assert "loading" not in last_line, "nothing is left of it"
