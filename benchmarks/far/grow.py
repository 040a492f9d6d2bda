"""`pie serve --processes N` before fake far engines that answer as fast as they are read: how tokens a second grow.

As many engines and as many clients as front ends, each a process of its own, so that they are not what is measured.
"""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.far.limit import fake_engine, words
from benchmarks.far.load import Result, chat_body, run

_COMMAND = "from proxy_inference_engine.cli.main import main; import sys; sys.exit(main())"


@contextlib.contextmanager
def served(urls: list[str], folder: Path, num_processes: int) -> Iterator[int]:
    """The port."""
    with tempfile.TemporaryDirectory() as work:
        variables = {
            "PIE_MODEL": str(folder), "PIE_ENGINE": "vllm", "PIE_URL": ",".join(urls), "PIE_PORT": "0",
            "PIE_PROCESSES": str(num_processes), "PIE_DATA_DIR": work, "PIE_CACHE_DIR": work,
            "PIE_MAX_WAITING": "100000", "PIE_MAX_WAITING_PER_KEY": "100000", "PIE_LOG_LEVEL": "error",
        }  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, "serve"],
            cwd=work, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            found = next(filter(None, (re.search(r"http://[^:]+:(\d+)", line) for line in process.stdout)), None)
            if found is None:
                sys.exit("the server did not start")
            yield int(found[1])
        finally:
            process.terminate()
            process.wait()


def grow(num_streams: int, num_tokens: int, numbers: Sequence[int]) -> None:
    speeds = {number: measure(num_streams, num_tokens, number) for number in numbers}
    one = speeds[numbers[0]] / numbers[0]
    print(f"\n| processes on one port, {num_streams} streams, {os.cpu_count()} cores | tokens/s | times one |")
    print("|---|---|---|")
    for number, speed in speeds.items():
        print(f"| {number} | {speed:,.0f} | {speed / one:.2f} |")


def measure(num_streams: int, num_tokens: int, num_processes: int) -> float:
    """Tokens a second."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(words())
        urls = [stack.enter_context(fake_engine(gap_ms=0)) for _ in range(num_processes)]
        port = stack.enter_context(served(urls, folder, num_processes))
        run(port, [chat_body("warm", 4) for _ in range(16 * num_processes)])
        bodies = [chat_body(f"Hello {number}", num_tokens) for number in range(num_streams)]
        shares = [bodies[number::num_processes] for number in range(num_processes)]
        with ProcessPoolExecutor(num_processes) as clients:
            results: list[Result] = list(clients.map(partial(run, port), shares))
    ended = max(each.began + each.seconds for each in results)
    speed = sum(each.num_tokens for each in results) / (ended - min(each.began for each in results))
    num_failed = sum(each.num_failed for each in results)
    print(f"{num_processes} process(es), {num_streams} streams: {speed:,.0f} tokens/s, {num_failed} failed", flush=True)
    return speed
