"""The Dockerfile copies what is there and what its steps read. It is not built: few machines that test have Docker."""

import json
import re
import subprocess
import sys
import threading
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.polling import HANG_S

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy" / "Dockerfile").read_text()


def copied() -> list[str]:
    return [name for line in re.findall(r"^COPY (.*)$", TEXT, re.MULTILINE) for name in line.split()[:-1]]


def test_what_is_copied_is_there_and_not_ignored() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    let_through = [line.removeprefix("!") for line in lines if line.startswith("!")]
    for name in copied():
        assert (ROOT / name).exists(), name
        assert any(fnmatch(name, pattern) for pattern in let_through), name


def test_it_installs_and_serves_as_make_does() -> None:
    assert "python scripts/install.py" in TEXT and TEXT.rstrip().endswith('CMD ["serve"]')
    assert {"requirements.txt", "requirements-cluster.txt", "pyproject.toml", "scripts/install.py", "src"} <= set(
        copied()
    )


@pytest.mark.parametrize("status", [200, 503])
def test_its_health_check_asks_the_port_that_is_set(status: int) -> None:
    found = re.search(r"^HEALTHCHECK .*? CMD (\[.*?\])$", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None
    program, *arguments = json.loads(found[1].replace("\\\n", ""))
    assert program == "python"  # that of the image's PATH
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is logged."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.timeout = HANG_S
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        variables = {"PIE_PORT": str(server.server_address[1])}
        done = subprocess.run([sys.executable, *arguments], env=variables, capture_output=True)
        thread.join()
    assert asked == ["/ready"] and (done.returncode == 0) == (status == 200)
