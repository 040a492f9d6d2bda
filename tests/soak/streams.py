"""500 streams at once, read by another process: each text is what the same request gets whole and alone.

How late the event loop is while they come is measured and printed, and how much of that is its own work, in processor
time, which others on the machine do not change. Nothing is asserted of either.
"""

import asyncio
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import MODEL, Running, running
from tests.polling import HANG_S
from tests.soak.outcome import Outcome, scaled

_NUM_STREAMS = 500
_LOOK_S = 0.005  # between two looks at the clock of the event loop
_ROOT = Path(__file__).parents[2]


def run(scale: float) -> Outcome:
    num_streams = scaled(_NUM_STREAMS, scale)
    runner = FakeRunner(lanes=(Lane(num_streams, 256),))
    with running(runner, admission=Admission(max_waiting=num_streams, max_waiting_per_tenant=num_streams)) as live:
        lags = _Lags(live)
        streamed = _ask(live, num_streams, is_stream=True)
        late = lags.end()
        whole = _ask(live, num_streams, is_stream=False)
        live.wait_idle()
        live.wait_alone()
    wrong = [f"stream {n} said something else" for n in range(num_streams) if streamed[n] != whole[n] or not whole[n]]
    p99, own = (values[len(values) * 99 // 100] * 1000 for values in late)
    print(f"{num_streams} streams at once: the event loop was {p99:.1f} ms late (p99), {own:.1f} ms by its own work")
    return Outcome(num_streams, wrong + ["two texts are the same"] * (len(set(whole)) < num_streams))


class _Lags:
    """How much later than it wanted a task of the server's event loop runs."""

    def __init__(self, live: Running) -> None:
        loop = live.server._loop
        assert loop is not None
        self._late: list[float] = []
        self._own: list[float] = []
        self._task = asyncio.run_coroutine_threadsafe(self._look(), loop)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            wanted, worked = loop.time() + _LOOK_S, time.thread_time()
            await asyncio.sleep(_LOOK_S)
            self._late.append(loop.time() - wanted)
            self._own.append(time.thread_time() - worked)

    def end(self) -> tuple[list[float], list[float]]:
        """From the shortest: by the clock, and by the processor."""
        self._task.cancel()
        return sorted(self._late), sorted(self._own)


def _ask(live: Running, num_streams: int, *, is_stream: bool) -> list[str]:
    """The checksums of the texts, from another process, which has a lock of its own."""
    host, port = live.address
    command = [sys.executable, "-m", __spec__.name, host, str(port), str(num_streams), str(int(is_stream))]
    ended = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=5 * HANG_S)
    assert ended.returncode == 0, ended.stderr
    checksums: list[str] = json.loads(ended.stdout)
    return checksums


async def _read_all(host: str, port: int, num_streams: int, is_stream: bool) -> list[str]:
    gate = asyncio.Semaphore(num_streams if is_stream else 8)

    async def one(number: int) -> str:
        async with gate:
            text = await _read(host, port, number, is_stream)
        return hashlib.sha256(text.encode()).hexdigest()

    return await asyncio.gather(*map(one, range(num_streams)))


async def _read(host: str, port: int, number: int, is_stream: bool) -> str:
    body = {"model": MODEL, "prompt": f"stream {number}", "seed": number, "max_tokens": 50, "ignore_eos": True}
    data = json.dumps({**body, "stream": is_stream}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    answer = (await reader.read()).decode()
    writer.close()
    if not is_stream:
        return str(json.loads(answer.partition("\r\n\r\n")[2])["choices"][0]["text"])
    events = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith("data: {")]
    assert "data: [DONE]" in answer
    return "".join(_text(event) for event in events)


def _text(event: dict[str, Any]) -> str:
    return "".join(choice["text"] for choice in event["choices"])


if __name__ == "__main__":
    arguments = sys.argv[1:]
    print(json.dumps(asyncio.run(_read_all(arguments[0], int(arguments[1]), int(arguments[2]), arguments[3] == "1"))))
