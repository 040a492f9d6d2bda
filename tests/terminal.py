"""A program in a pseudo-terminal: what a person types goes in, what they would see comes out."""

import contextlib
import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.polling import HANG_S

_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_]|\][^\x07]*\x07)")
ENTER, CTRL_C, CTRL_D, TAB, UP, ALT_ENTER = "\r", "\x03", "\x04", "\t", "\x1b[A", "\x1b\r"
PASTE = "\x1b[200~{}\x1b[201~"  # how terminals mark what is pasted
PIE = (sys.executable, "-m", "proxy_inference_engine")


class Terminal:
    """80 columns wide. `seen` is all that came, as it came; `text` the same without what steers a terminal."""

    def __init__(self, process: "subprocess.Popen[bytes]", handle: int) -> None:
        self.process = process
        self._handle = handle
        self.seen = ""
        self._place = 0  # in `text`: what was waited for already

    @property
    def text(self) -> str:
        return _SEQUENCES.sub("", self.seen).replace("\r", "")

    def type(self, text: str, *keys: str) -> None:
        os.write(self._handle, "".join((text, *keys)).encode())

    def wait_for(self, wanted: str) -> str:
        """What came before it since the last call, and with it. Fails when the program ends or hangs without it."""
        deadline = time.monotonic() + HANG_S
        while wanted not in self.text[self._place :]:
            assert time.monotonic() < deadline, f"{wanted!r} did not come: {self.text!r}"
            assert self._read(), f"{wanted!r} did not come before the end: {self.text!r}"
        end = self.text.index(wanted, self._place) + len(wanted)
        found = self.text[self._place : end]
        self._place = end
        return found

    def wait_end(self) -> int:
        """The exit code, once all was read."""
        deadline = time.monotonic() + HANG_S
        while self._read():
            assert time.monotonic() < deadline, f"it does not end: {self.text!r}"
        return self.process.wait(HANG_S)

    def _read(self) -> bool:
        """False when nothing more can come."""
        ready, _, _ = select.select([self._handle], [], [], 0.2)
        if not ready:
            return True
        try:
            data = os.read(self._handle, 1 << 16)
        except OSError as error:  # how Linux says that the other side is closed
            assert error.errno == errno.EIO
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)


def environment(home: Path, **variables: str) -> dict[str, str]:
    """No settings of whoever runs the tests."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8", "PIE_SERVER": "none", **variables}


@contextmanager
def terminal(words: Sequence[str], folder: Path, variables: Mapping[str, str]) -> Iterator[Terminal]:
    """Run a program in a terminal of its own, so that Ctrl-C reaches it alone. It does not outlive the block."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell starts jobs in the background with it ignored

    process = subprocess.Popen(
        [*words], cwd=folder, env=dict(variables), stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=take_terminal
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
        os.close(ours)
