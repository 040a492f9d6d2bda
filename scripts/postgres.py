"""Runs a PostgreSQL of its own for as long as somebody wants it: `python scripts/postgres.py` prints its URL, serves
until its input ends or a signal comes, and leaves nothing behind.

For tests and trials: data are in a temporary folder, and without --durable commits do not wait for the disk. Debian and
Ubuntu have the programs in the package `postgresql`; wherever `pg_config` or /usr/lib/postgresql has them will do.
"""

import argparse
import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_USERS = ("postgres", "nobody")  # who runs it where we are root, which PostgreSQL refuses to be
_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
_START_SECONDS = 60
_PR_SET_PDEATHSIG = 1


def find_programs() -> Path | None:
    """The folder of initdb and postgres, the newest where there are several; None: there is none."""
    on_path = shutil.which("initdb")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    if on_path is not None:
        folders.append(Path(on_path).resolve().parent)
    return next((folder for folder in folders if (folder / "postgres").exists()), None)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def unprivileged() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in _USERS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise SystemExit(f"PostgreSQL does not run as root, and none of these users is there: {', '.join(_USERS)}")


class Cluster:
    """A cluster in `folder`, which may be stopped and started again."""

    def __init__(self, programs: Path, folder: Path, *, is_durable: bool = False) -> None:
        self.port = free_port()
        self.url = f"postgresql://pie@127.0.0.1:{self.port}/postgres"
        self._programs = programs
        self._folder = folder
        self._settings = () if is_durable else _FAST
        self._user = unprivileged()
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)
        words = ["--username=pie", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", str(folder / "data")]
        subprocess.run(self._command("initdb", *words), check=True, stdout=subprocess.DEVNULL, **self._as_user())

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process

    def start(self) -> None:
        settings = ("listen_addresses=127.0.0.1", f"port={self.port}", f"unix_socket_directories={self._folder}")
        words = [word for each in (*settings, *self._settings) for word in ("-c", each)]
        with (self._folder / "log").open("ab") as log:
            command = self._command("postgres", "-D", str(self._folder / "data"), *words)
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, preexec_fn=_end_with_parent, **self._as_user()
            )
        for _ in range(_START_SECONDS * 20):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)
                raise RuntimeError((self._folder / "log").read_text()[-2000:])
            if self._is_ready():
                return
        raise RuntimeError("PostgreSQL does not start")

    def _is_ready(self) -> bool:
        """As it says itself, in the last line of the file that its own tools look at."""
        try:
            return (self._folder / "data" / "postmaster.pid").read_text().rstrip().endswith("\nready")
        except OSError:
            return False

    def stop(self) -> None:
        """At once, as a machine that goes off; what was committed is there after the next start."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
            self._process = None

    def _command(self, name: str, *words: str) -> list[str]:
        return [str(self._programs / name), *words]

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": [], "cwd": "/"}


def _end_with_parent() -> None:
    """However that ends. Linux alone can do this; elsewhere one that was killed leaves its database running."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


@contextlib.contextmanager
def cluster(programs: Path, *, is_durable: bool = False) -> Iterator[Cluster]:
    """One that runs, and is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="pie-postgres-", ignore_cleanup_errors=True) as name:
        made = Cluster(programs, Path(name), is_durable=is_durable)
        try:
            made.start()
            yield made
        finally:
            made.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--durable", action="store_true", help="commits wait for the disk, as they do elsewhere")
    words = parser.parse_args()
    programs = find_programs()
    if programs is None:
        print("there is no PostgreSQL here: install the package postgresql", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with contextlib.suppress(KeyboardInterrupt), cluster(programs, is_durable=words.durable) as running:
        print(running.url, flush=True)
        sys.stdin.buffer.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
