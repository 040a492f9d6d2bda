"""A person's lines: edited with readline where Python has it, kept over sessions, of several lines where wanted."""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

try:
    import readline as _readline
except ImportError:  # some Pythons have none
    _readline = None  # type: ignore[assignment]

_FENCE = '"""'
_MAX_ENTRIES = 1000
_PROMPT, _MORE = ">>> ", "... "

Completer = Callable[[str], list[str]]  # what a line may go on with, as whole lines


class LineEditor:
    """Reads questions. Where stdin is no terminal it only reads lines."""

    def __init__(self, history: Path | None, complete: Completer = lambda _: []) -> None:
        self._is_terminal = sys.stdin.isatty()
        self._history = history if self._is_terminal else None
        self._complete = complete
        self._found: list[str] = []
        if self._is_terminal and _readline is not None:
            self._set_up(_readline)

    def read(self) -> str | None:
        """The next question, stripped; None at the end. Ctrl-C throws away what was typed."""
        while True:
            try:
                text = self._read_whole()
            except EOFError:
                if self._is_terminal:
                    print()
                return None
            except KeyboardInterrupt:
                print()
                continue
            if text and self._is_terminal:
                self._remember(text)
            return text

    def _read_whole(self) -> str:
        """A line; with a backslash at its end, and the next; between triple quotes, all of them."""
        line = self._line(_PROMPT)
        if line.strip().startswith(_FENCE):
            return self._fenced(line.strip().removeprefix(_FENCE))
        lines = [line]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1].removesuffix("\\")
            lines.append(self._line(_MORE))
        return "\n".join(lines).strip()

    def _fenced(self, first: str) -> str:
        lines = [first]
        while not lines[-1].rstrip().endswith(_FENCE):
            lines.append(self._line(_MORE))
        lines[-1] = lines[-1].rstrip().removesuffix(_FENCE)
        return "\n".join(lines).strip()

    def _line(self, prompt: str) -> str:
        return input(prompt if self._is_terminal else "")

    def _set_up(self, readline: ModuleType) -> None:
        readline.set_auto_history(False)  # a question of several lines is one entry
        for entry in self._entries():
            readline.add_history(entry)
        readline.set_completer(self._next_match)
        readline.set_completer_delims("")
        is_gnu = "libedit" not in (readline.__doc__ or "")
        readline.parse_and_bind("tab: complete" if is_gnu else "bind ^I rl_complete")
        if is_gnu:
            readline.parse_and_bind("set enable-bracketed-paste on")  # Python turns it off: pasted lines stay together
            for keys in ("\\e\\C-m", "\\e\\C-j"):  # Alt-Enter: a new line in the question
                readline.parse_and_bind(f'"{keys}": "\\C-v\\C-j"')

    def _next_match(self, text: str, number: int) -> str | None:
        if number == 0:
            self._found = self._complete(text)
        return self._found[number] if number < len(self._found) else None

    def _entries(self) -> list[str]:
        """Oldest first. A file that cannot be read is no history."""
        entries = []
        if self._history is not None:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                for line in self._history.read_text(encoding="utf-8").splitlines():
                    with contextlib.suppress(ValueError):
                        entries.append(str(json.loads(line)))
        return entries[-_MAX_ENTRIES:]

    def _remember(self, text: str) -> None:
        if _readline is not None:
            _readline.add_history(text)
        if self._history is None:
            return
        with contextlib.suppress(OSError):  # a full disk is no reason not to talk
            self._history.parent.mkdir(parents=True, exist_ok=True)
            if not self._history.exists():
                self._history.touch(mode=0o600)
            with self._history.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(text, ensure_ascii=False)}\n")

    def trim(self) -> None:
        """Keep the youngest entries alone, once there are many more than that."""
        if self._history is None:
            return
        with contextlib.suppress(OSError, UnicodeDecodeError):
            lines = self._history.read_text(encoding="utf-8").splitlines(keepends=True)
            if len(lines) > 2 * _MAX_ENTRIES:
                self._history.write_text("".join(lines[-_MAX_ENTRIES:]), encoding="utf-8")
