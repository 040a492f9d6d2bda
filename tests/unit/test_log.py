"""One record is one line, whatever is in it, and nobody waits for whoever reads it."""

import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from proxy_inference_engine import log
from tests.polling import HANG_S


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What is logged at level info; the loggers are as before afterwards."""
    root, ours = logging.getLogger(), logging.getLogger(log.PACKAGE)
    before = (root.handlers, root.level, ours.level, logging.raiseExceptions)
    stream = io.StringIO()
    log.configure("info", stream)
    yield stream
    root.handlers, logging.raiseExceptions = before[0], before[3]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def flush() -> None:
    """A thread writes."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def written(stream: io.StringIO) -> str:
    flush()
    return stream.getvalue()


def test_fields_are_pairs_and_stay_on_the_line(stream: io.StringIO) -> None:
    fields = {"id": "r-1", "path": "/x y\n2026 info forged", "ms": 12.5, "status": 200, "key": None, "empty": ""}
    logging.getLogger(f"{log.PACKAGE}.server.access").info("request %s", "a\nb", extra={"fields": fields})
    line = written(stream)
    assert line.count("\n") == 1
    assert line.partition(" ")[2] == (
        'info server.access request a\\nb id=r-1 path="/x y\\n2026 info forged" ms=12.5 status=200 empty=""\n'
    )


def test_levels(stream: io.StringIO) -> None:
    logging.getLogger(log.PACKAGE).debug("hidden")
    logging.getLogger("uvicorn").info("hidden")
    logging.getLogger("uvicorn").warning("shown")
    assert written(stream).endswith(" warning uvicorn shown\n")
    assert "hidden" not in written(stream)


def test_a_closed_stream_disturbs_nobody(stream: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    stream.close()
    logging.getLogger(log.PACKAGE).error("lost")
    flush()
    assert capsys.readouterr().err == ""


def fill(pipe: int) -> None:
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, b"x" * 4096)
    os.set_blocking(pipe, True)


def test_a_pipe_that_nobody_reads_holds_up_nobody() -> None:
    """A supervisor that took the server's pipe and never read it stopped the whole server after 541 requests."""
    reading, writing = os.pipe()
    fill(writing)
    num_lines = 3 * log.MAX_LINES
    with os.fdopen(writing, "w") as stream, os.fdopen(reading) as reader:
        log.configure("info", stream)
        for number in range(num_lines):
            logging.getLogger(log.PACKAGE).info("line %d", number)
        num_dropped = log.num_dropped()
        assert num_dropped > 0
        lines = [reader.readline() for _ in range(num_lines - num_dropped + 1)]
    told = [line for line in lines if "dropped=" in line]
    assert [int(line.rpartition("dropped=")[2]) for line in told] == [num_dropped]
    assert [line.split()[-1] for line in lines if line not in told] == list(map(str, range(num_lines - num_dropped)))


def test_a_program_ends_under_a_pipe_that_nobody_reads() -> None:
    program = (
        "import logging; from proxy_inference_engine import log; log.configure('info')\n"
        "for number in range(20_000): logging.getLogger(log.PACKAGE).info('line %d', number)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)
    try:
        assert process.wait(HANG_S) == 0
    finally:
        process.kill()
        process.communicate()


def test_what_was_logged_last_is_written_at_the_end() -> None:
    program = (
        "import logging; from proxy_inference_engine import log; log.configure('info')\n"
        "for number in range(100): logging.getLogger(log.PACKAGE).info('line %d', number)\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_S)
    assert [line.split()[-1] for line in answer.stderr.splitlines()] == [str(number) for number in range(100)]


def test_an_entry_may_come_in_the_middle_of_another() -> None:
    """From what the garbage collector frees (asyncio logs tasks that still waited) or, as here, a signal's handler."""
    program = (
        "import logging, signal; from proxy_inference_engine import log; log.configure('info')\n"
        "logger, seen = logging.getLogger(log.PACKAGE), []\n"
        "def interrupt(*_): seen.append(1); logger.info('in between')\n"
        "signal.signal(signal.SIGALRM, interrupt)\n"
        "signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)\n"
        "while len(seen) < 2_000: logger.info('line')\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    try:
        assert process.wait(HANG_S) == 0
    finally:
        process.kill()
        process.wait()
