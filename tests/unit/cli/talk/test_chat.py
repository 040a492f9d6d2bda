"""`pie chat` over the fake model: lines and slash commands in, answers out; and how an answer gets onto a terminal."""

import io
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from proxy_inference_engine.cli.talk.chat import talk
from proxy_inference_engine.cli.talk.slash import SLASH_COMMANDS, completions
from proxy_inference_engine.cli.talk.speech import Speech, speak
from proxy_inference_engine.output.events import ReasoningDelta, TextDelta
from proxy_inference_engine.runners.base import Lane, Row
from tests.unit.cli.talk.conversations import fake_conversation


class Terminal(io.StringIO):
    """Notes what can be seen at each flush."""

    def __init__(self, *, is_terminal: bool = True) -> None:
        super().__init__()
        self.is_terminal = is_terminal
        self.seen: list[str] = []

    def isatty(self) -> bool:
        return self.is_terminal

    def flush(self) -> None:
        self.seen.append(self.getvalue())


def say(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


@pytest.mark.parametrize("is_terminal", [False, True])
def test_an_answer_is_shown_while_it_comes(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    terminal = Terminal(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    with fake_conversation() as conversation:
        speak(conversation.ask("hello"))
        answer = conversation.messages[-1]["content"]
    said = terminal.getvalue().rpartition("\x1b[K")[2]  # after the sign that turned, if it had to
    assert said == f"{answer}\n"
    seen = {text for text in terminal.seen if text.endswith(answer[-1]) or answer.startswith(text)}
    assert len(answer) > 5 and len(seen) > len(answer) // 2


def test_reasoning_is_dim_and_what_a_model_writes_steers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for no_color, expected in (("", "\x1b[2mhm\x1b[0m\n\n[31myes\n"), ("1", "(thinking) hm\n\n[31myes\n")):
        monkeypatch.setenv("NO_COLOR", no_color)
        terminal = Terminal()
        speech = Speech(terminal)
        for saying in (ReasoningDelta("hm"), TextDelta("\x1b[31myes\x07")):
            speech.say(saying)
        speech.finish()
        assert terminal.getvalue() == expected
    pipe = Terminal(is_terminal=False)
    speech = Speech(pipe)
    for saying in (ReasoningDelta("hm"), TextDelta("yes")):
        speech.say(saying)
    assert pipe.getvalue() == "yes"


def test_empty_lines_at_the_end_are_not_shown_to_a_person() -> None:
    """They would stand between the answer and the next question; a program gets all of it."""
    for is_terminal, expected in ((True, "one\n\ntwo\n"), (False, "one\n\ntwo\n\n\n")):
        terminal = Terminal(is_terminal=is_terminal)
        speech = Speech(terminal)
        for piece in ("one\n", "\ntwo", "\n", "\n"):
            speech.say(TextDelta(piece))
        speech.finish()
        assert terminal.getvalue() == expected


def test_lines_and_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    say(monkeypatch, "/help", "hello", "", "/clear", "again", "/exit", "never")
    with fake_conversation() as conversation:
        talk(conversation)
        assert [message["content"] for message in conversation.messages[::2]] == ["again"]
        said = capsys.readouterr().out
        assert all(name in said for name in SLASH_COMMANDS)


def test_the_input_may_end_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, "hello")
    with fake_conversation() as conversation:
        talk(conversation)
        assert len(conversation.messages) == 2


def test_several_lines_are_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, '"""one', "two", 'three"""', "four\\", "five")
    with fake_conversation() as conversation:
        talk(conversation)
        assert [message["content"] for message in conversation.messages[::2]] == ["one\ntwo\nthree", "four\nfive"]


def test_what_commands_set_and_refuse(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    schema, talk_file = tmp_path / "schema.json", tmp_path / "talk.json"
    schema.write_text('{"enum": ["yes"]}')
    say(
        monkeypatch,
        "/set temperature 9",
        "/set colour red",
        "/set temprature 1",
        "/set tools 1",
        "/set seed 7",
        "/set",
        "/set seed off",
        "/system Be brief.",
        "/schema missing.json",
        f"/schema {schema}",
        "well?",
        "/schema off",
        "/stats",
        f"/save {talk_file}",
        f"/save {talk_file}",
        "/clear",
        f"/load {talk_file}",
        "/image notes.txt",
        "/model",
        "/dance",
        "/modle",
        "/retry",
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("no image")
    with fake_conversation() as conversation:
        talk(conversation)
        assert (conversation.system, conversation.settings) == ("Be brief.", {"temperature": 0, "min_tokens": 2})
        assert conversation.messages[0]["content"] == "well?"
    said, complaints = capsys.readouterr()
    assert "  seed = 7" in said and '"yes"' in said and "tokens" in said and "in this process" in said
    wanted = (
        "'temperature'",
        "'colour' is no option of a chat.",
        "'temprature' is no option of a chat; did you mean temperature?",
        "'tools'",
        "missing.json",
        "talk.json",
        "by its name this is no image",
        "/dance is no command here; /help lists them",
        "/modle is no command here; did you mean /model?",
    )
    lines = complaints.splitlines()
    assert len(lines) == len(wanted)
    for line, word in zip(lines, wanted, strict=True):
        assert line.startswith("pie: ") and word in line


def test_the_tab_key_knows_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.json").write_text("{}")
    with fake_conversation() as conversation:
        assert completions(conversation, "/sc") == ["/schema "]
        assert completions(conversation, "/set temp") == ["/set temperature "]
        assert completions(conversation, "/schema sch") == ["/schema schema.json"]
        assert completions(conversation, "hello") == []


def test_ctrl_c_stops_the_answer_and_not_the_chat(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first answer would never end; the signal comes while it streams."""
    say(monkeypatch, "hello", "/clear")
    steps = iter(range(1_000_000))

    def interrupt(rows: Sequence[Row]) -> None:
        if next(steps) == 20:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    # A shell starts background jobs with SIGINT ignored, and Python leaves it so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with fake_conversation(end_bias=-100.0, on_forward=interrupt, lanes=(Lane(1, 100_000),)) as conversation:
            talk(conversation)
            assert conversation.messages == []
    finally:
        signal.signal(signal.SIGINT, before)
    assert "(stopped)" in capsys.readouterr().err
