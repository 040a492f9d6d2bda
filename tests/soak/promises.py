"""Every promise of docs/reliability.md is kept by the tests that it names; and the tests that only `make soak` runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.soak.outcome import Outcome, scaled

ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"`((?:unit|api|model|soak|sim|golden)/[\w/]+\.py)`")
_COUNTED = re.compile(r"(\d+) (passed|failed|error|errors)\b|(\d+)/\d+ (tests) collected")
_WRONG = re.compile(r"(?:FAILED|ERROR) \S+.*")


def named_files() -> list[str]:
    """The tests that the page names, each once."""
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    return [f"tests/{path}" for path in dict.fromkeys(_NAMED.findall(text))]


def run(scale: float) -> Outcome:
    files = named_files()
    return _outcome(files[: scaled(len(files), scale)])


def run_long(scale: float) -> Outcome:
    few = ("tests/model/test_pool.py",)  # to find all takes a minute
    return _marked(scale, *(few if scale < 1 else ("tests", "--ignore=tests/sim", "--ignore=tests/soak")))


def run_seeds(scale: float) -> Outcome:
    return _marked(scale, "tests/sim")


def run_waits(scale: float) -> Outcome:
    return _marked(scale, "tests/soak")


def _marked(scale: float, *words: str) -> Outcome:
    """As they are: they have no smaller form, so below the whole campaign they are only collected."""
    return _outcome([*words, "-m", "soak", *(["--collect-only"] if scale < 1 else [])])


def _outcome(words: list[str]) -> Outcome:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    counts = [int(number or other) for number, _, other, _ in _COUNTED.findall(done.stdout)]
    wrong = _WRONG.findall(done.stdout)
    if done.returncode and not wrong:
        wrong = [f"pytest ends with {done.returncode}: {done.stdout[-300:]}"]
    return Outcome(sum(counts), wrong)
