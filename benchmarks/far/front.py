"""Our server before a far engine, in a process of its own that watches its event loop.

    python -m benchmarks.far.front URL FOLDER PORT

Says "ready" on a line; when its input closes it ends and says how late the loop was, and what processor time it took.
"""

import asyncio
import contextlib
import json
import os
import resource
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

from proxy_inference_engine.config import Config
from proxy_inference_engine.models.load import load_far
from proxy_inference_engine.models.watcher import Nobody
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.app import create_app
from proxy_inference_engine.server.process import DrainingServer

_TICK_S = 0.005


class WatchedServer(DrainingServer):
    """Notes how much later than it wanted a timer came, all the time."""

    lags: list[float]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.lags = []
        self._watching = asyncio.ensure_future(self._watch())
        print("ready", flush=True)

    async def _watch(self) -> None:
        while True:
            due = time.perf_counter() + _TICK_S
            await asyncio.sleep(_TICK_S)
            self.lags.append(time.perf_counter() - due)


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

        def end() -> None:
            sys.stdin.read()
            server.should_exit = True

        threading.Thread(target=end, daemon=True).start()
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind(("127.0.0.1", port))
            sock.listen(4096)
            began = resource.getrusage(resource.RUSAGE_SELF)
            with contextlib.suppress(KeyboardInterrupt):
                server.run(sockets=[sock])
        used = resource.getrusage(resource.RUSAGE_SELF)
        model.close()
    lags = sorted(server.lags)
    processor = used.ru_utime + used.ru_stime - began.ru_utime - began.ru_stime
    said = {"lag_p50": lags[len(lags) // 2], "lag_p99": lags[int(len(lags) * 0.99)], "processor_s": processor}
    print(json.dumps(said), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
