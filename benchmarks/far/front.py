"""Our server before a far engine, in a process of its own that watches its event loop.

    python -m benchmarks.far.front URL FOLDER PORT

Says "ready" on a line. Two moments of the monotonic clock on its input end it: it says how late the loop was between
them, and how much of a processor it took.
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from proxy_inference_engine.config import Config
from proxy_inference_engine.models.load import load_far
from proxy_inference_engine.models.watcher import Nobody
from proxy_inference_engine.pool.garbage import set_apart
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.app import create_app
from proxy_inference_engine.server.process import DrainingServer

_TICK_S = 0.005


class Look(NamedTuple):
    """At one moment."""

    at: float
    late_s: float  # the timer
    processor_s: float  # that was used so far


class WatchedServer(DrainingServer):
    """Notes how much later than it wanted a timer came, all the time."""

    looks: list[Look]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.looks = []
        self._watching = asyncio.ensure_future(self._watch())
        print("ready", flush=True)

    async def _watch(self) -> None:
        while True:
            due = time.monotonic() + _TICK_S
            await asyncio.sleep(_TICK_S)
            now = time.monotonic()
            self.looks.append(Look(now, now - due, time.process_time()))


def summary(looks: list[Look]) -> dict[str, float]:
    late = sorted(each.late_s for each in looks)
    processor_s, seconds = looks[-1].processor_s - looks[0].processor_s, looks[-1].at - looks[0].at
    return {
        "late_p50": late[len(late) // 2],
        "late_p99": late[int(len(late) * 0.99)],
        "processor_s": processor_s,
        "processors": processor_s / seconds,
    }


def main() -> None:
    urls, folder, port = sys.argv[1].split(","), sys.argv[2], int(sys.argv[3])
    with tempfile.TemporaryDirectory() as work:
        config = Config(
            engine="vllm", url=tuple(urls), model=folder, data_dir=Path(work), cache_dir=Path(work),
            max_waiting=100_000, max_waiting_per_key=100_000, drain_seconds=0.1, log_level="error",
        )  # fmt: skip
        answerer = load_far(config, Nobody())
        model = ServedModel.of(answerer, config)
        server = WatchedServer(create_app([model], config), config.drain_seconds)
        set_apart()

        window: list[float] = []

        def end() -> None:
            window.extend(map(float, sys.stdin.read().split()))
            server.should_exit = True

        threading.Thread(target=end, daemon=True).start()
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind(("127.0.0.1", port))
            sock.listen(4096)
            with contextlib.suppress(KeyboardInterrupt):
                server.run(sockets=[sock])
        model.close()
    looks = [look for look in server.looks if window[0] <= look.at <= window[1]]
    print(json.dumps(summary(looks)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
