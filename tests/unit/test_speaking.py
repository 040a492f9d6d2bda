"""How an answer gets onto the terminal: piece by piece."""

import io
import sys

import pytest

from proxy_inference_engine.cli.session import speak
from tests.unit.test_cli import fake_conversation


class Terminal(io.StringIO):
    """Notes what can be seen at each flush."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal
        self.seen: list[str] = []

    def isatty(self) -> bool:
        return self.is_terminal

    def flush(self) -> None:
        self.seen.append(self.getvalue())


@pytest.mark.parametrize("is_terminal", [False, True])
async def test_an_answer_is_shown_while_it_comes(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    terminal = Terminal(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    with fake_conversation() as conversation:
        await speak(conversation, "hello")
        answer = conversation.turns[-1].text
    assert terminal.getvalue() == f"{answer}\n"
    assert len(answer) > 5 and len(set(terminal.seen)) > len(answer) // 2
    assert all(terminal.getvalue().startswith(text) for text in terminal.seen)
