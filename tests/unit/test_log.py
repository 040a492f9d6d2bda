"""One record is one line, whatever is in it."""

import io
import logging
from collections.abc import Iterator

import pytest

from proxy_inference_engine import log


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


def test_fields_are_pairs_and_stay_on_the_line(stream: io.StringIO) -> None:
    fields = {"id": "r-1", "path": "/x y\n2026 info forged", "ms": 12.5, "status": 200, "key": None, "empty": ""}
    logging.getLogger(f"{log.PACKAGE}.server.access").info("request %s", "a\nb", extra={"fields": fields})
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert line.partition(" ")[2] == (
        'info server.access request a\\nb id=r-1 path="/x y\\n2026 info forged" ms=12.5 status=200 empty=""\n'
    )


def test_levels(stream: io.StringIO) -> None:
    logging.getLogger(log.PACKAGE).debug("hidden")
    logging.getLogger("uvicorn").info("hidden")
    logging.getLogger("uvicorn").warning("shown")
    assert stream.getvalue().endswith(" warning uvicorn shown\n")
    assert "hidden" not in stream.getvalue()


def test_a_closed_stream_disturbs_nobody(stream: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    stream.close()
    logging.getLogger(log.PACKAGE).error("lost")
    assert capsys.readouterr().err == ""
