"""A request passes through few files: as many as ARCHITECTURE.md says, and no more than were agreed."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIMITS = {
    "chat, plain": 45,
    "chat, streamed, tools and schema": 65,
    "response, stored": 55,
    "message (Anthropic)": 45,
}
_ROUNDS = 3  # on a machine that stands still for seconds, a warning passes through the log too


def _files(table: str) -> dict[str, int]:
    return {name: int(num) for name, num in re.findall(r"^\| ([^|]+) \| (\d+) \| \d+ \|$", table, re.MULTILINE)}


def _counted() -> dict[str, int]:
    command = [sys.executable, str(ROOT / "scripts" / "walk.py")]
    return _files(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)


def test_requests_pass_through_as_few_files_as_the_document_says() -> None:
    written = _files((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    assert written.keys() == LIMITS.keys()
    assert all(written[name] <= most for name, most in LIMITS.items())
    assert any(_counted() == written for _ in range(_ROUNDS)), "run `python scripts/walk.py --files`"
