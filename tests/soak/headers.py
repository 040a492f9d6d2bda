"""GGUF files with headers that cannot be true, loaded in processes of their own: none ends one."""

import tempfile
from pathlib import Path

from tests.model.test_damaged_headers import tried
from tests.soak.outcome import Outcome, scaled

_NUM_HEADERS = 10_000
_FIRST = 1_000  # the seeds before are those of the tests


def run(scale: float) -> Outcome:
    first, wrong = _FIRST, list[str]()
    last = first + scaled(_NUM_HEADERS, scale)
    with tempfile.TemporaryDirectory() as folder:
        while first < last:
            done = tried(Path(folder), first, last)
            if done.returncode == 0:
                break
            seeds = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("trying")]
            assert seeds, done.stderr[-500:]
            reason = (done.stderr.strip().splitlines() or [""])[-1]
            wrong.append(f"seed {seeds[-1]} ended the process with {done.returncode}: {reason[-200:]}")
            first = seeds[-1] + 1
    return Outcome(last - _FIRST, wrong)
