"""A process may open as many files as it may have connections, where its user may."""

import subprocess
import sys

import pytest

from proxy_inference_engine.server.http.connections import WANTED_FILES

PROGRAM = (
    "import resource; from proxy_inference_engine.server.http.connections import allow_files; allow_files()\n"
    "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ("ulimit -S -n 1024", WANTED_FILES),
        (f"ulimit -S -n {WANTED_FILES + 1}", WANTED_FILES + 1),
        ("ulimit -S -n 300; ulimit -H -n 500", 500),
    ],
)
def test_the_limit_is_raised_as_far_as_it_may_be(limits: str, expected: int) -> None:
    command = ["sh", "-c", f'{limits}; exec "$0" -c "$1"', sys.executable, PROGRAM]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert answer.stdout.strip() == str(expected), answer.stderr
