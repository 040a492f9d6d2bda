"""Kill -9 in the middle of writes: the database stays whole, and what was acknowledged is there."""

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from proxy_inference_engine.store import Store
from tests.polling import HANG_S
from tests.soak.outcome import Outcome, scaled
from tests.soak.writing import OWNER, checksum

_ROOT = Path(__file__).parents[2]
_NUM_KILLS = 400


def killed(path: Path, run: int) -> list[list[str]]:
    """Let a process write until it dies at a random moment, and return what it had acknowledged.

    Three kinds of moments take turns: any while it writes, right before a commit, and early, when it opens the file.
    """
    chance, kind = random.Random(run), run % 3
    command = [sys.executable, "-m", "tests.soak.writing", str(path), str(run)]
    command += [str(chance.randint(1, 40))] if kind == 1 else []
    process = subprocess.Popen(
        command, cwd=_ROOT, env={"PYTHONPATH": "src"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    first = process.stdout.readline() if kind == 0 else ""
    if kind != 1:
        time.sleep(chance.uniform(0, 0.1) if kind == 0 else chance.uniform(0.05, 0.3))
        process.kill()
    rest, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == -signal.SIGKILL, errors
    lines = (first + rest).splitlines(keepends=True)
    return [line.split() for line in lines if line.endswith("\n")]  # the last may be cut


async def check(path: Path, acknowledged: list[list[str]]) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store = Store.open(path)
    try:
        deleted = {words[1] for words in acknowledged if words[0] == "deleted"}
        for words in acknowledged:
            if words[0] == "saved":
                await check_saved(store, words[1], int(words[2]), words[1] in deleted)
        records = (await store.list("response", OWNER, limit=100_000)).records
        assert {record.status for record in records} <= {"completed", "failed"}
        assert {record.body["error"]["code"] for record in records if record.status == "failed"} <= {"server_error"}
    finally:
        store.close()


async def check_saved(store: Store, id_: str, expected: int, is_deleted: bool) -> None:
    item = await store.load_item(OWNER, f"conv-{id_.rpartition('-')[0]}", f"item-{id_}")
    assert item == {"id": f"item-{id_}"}
    record = await store.load("response", OWNER, id_)
    if is_deleted:
        assert record is None, "a deletion that was acknowledged came undone"
    elif record is not None:
        assert checksum(record) == expected
    else:
        # Its deletion was committed, and the process died before it could say so.
        assert int(id_.rpartition("-")[2]) % 4 == 3, f"{id_} was acknowledged and is not there"


def run(scale: float) -> Outcome:
    """Each eighth begins a file; the others go on with one that was hit before."""
    num_kills, num_acknowledged, wrong = scaled(_NUM_KILLS, scale), 0, list[str]()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(num_kills):
            path = Path(folder) / f"store-{number // 8}.db"
            try:
                acknowledged = killed(path, number)
                asyncio.run(check(path, acknowledged))
                num_acknowledged += len(acknowledged)
            except AssertionError as error:
                wrong.append(f"kill {number}: {error}")
    if num_kills >= 3 and not num_acknowledged:
        wrong.append("nothing was acknowledged before any kill")
    return Outcome(num_kills, wrong)
