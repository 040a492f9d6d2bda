"""The throw-away database ends with whoever wanted it; and where there is none, CI does not pass it over."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests import postgres
from tests.polling import HANG_S, wait_until
from tests.postgres import require_programs

_ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("end", ["input", "signal", "kill"])
def test_it_ends_with_whoever_wanted_it(end: str) -> None:
    require_programs()
    command = [sys.executable, "scripts/postgres.py"]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        url = process.stdout.readline().strip()
        with psycopg.connect(url) as connection:
            (data,) = connection.execute("SHOW data_directory").fetchone() or ("",)
        if end == "input":
            process.stdin.close()
        else:
            process.send_signal(signal.SIGTERM if end == "signal" else signal.SIGKILL)
        assert process.wait(HANG_S) == (-signal.SIGKILL if end == "kill" else 0)
        wait_until(lambda: not answers(url))
        folder = Path(data).parent
        assert folder.exists() == (end == "kill")
        shutil.rmtree(folder, ignore_errors=True)


def answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def test_without_one_tests_are_skipped_and_in_ci_they_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "find_programs", lambda: None)
    monkeypatch.delenv("REQUIRE_POSTGRES", raising=False)
    with pytest.raises(pytest.skip.Exception, match="install the package postgresql"):
        require_programs()
    monkeypatch.setenv("REQUIRE_POSTGRES", "1")
    with pytest.raises(pytest.fail.Exception, match="install the package postgresql"):
        require_programs()
