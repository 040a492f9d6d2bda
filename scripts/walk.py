"""Counts the files and functions of the package that one request passes through, from socket to socket.

    python scripts/walk.py            the table that ARCHITECTURE.md shows
    python scripts/walk.py --files    with the names of the files

A real server over the fake model, traced with the interpreter's profiler; the first request of its kind, so compiling
a grammar counts too. What a request does before it is read, such as accepting the connection, does not.
"""

import argparse
import http.client
import json
import socket
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import proxy_inference_engine
from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.app import create_app
from proxy_inference_engine.server.process import DrainingServer

ROOT = f"{Path(proxy_inference_engine.__file__).parent}/"
HELLO = [{"role": "user", "content": "Hello"}]
OBJECT = {
    "type": "object",
    "properties": {"is_fine": {"type": "boolean"}},
    "required": ["is_fine"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "look", "parameters": OBJECT}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "state", "schema": OBJECT}}


class Case(NamedTuple):
    name: str
    path: str
    body: dict[str, Any]


CASES = (
    Case("chat, plain", "/v1/chat/completions", {"messages": HELLO, "max_tokens": 8}),
    Case(
        "chat, streamed, tools and schema",
        "/v1/chat/completions",
        {"messages": HELLO, "max_tokens": 60, "stream": True, "tools": [TOOL], "response_format": FORMAT, "seed": 1},
    ),
    Case("response, stored", "/v1/responses", {"input": "Hello", "max_output_tokens": 8}),
    Case("message (Anthropic)", "/v1/messages", {"messages": HELLO, "max_tokens": 8}),
)


class Tracer:
    """Notes every named function of the package that is called while it is on, in every thread."""

    def __init__(self) -> None:
        self.is_on = False
        self.seen: set[tuple[str, str]] = set()
        threading.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if self.is_on and event == "call" and code.co_filename.startswith(ROOT) and not code.co_name.startswith("<"):
            self.seen.add((code.co_filename.removeprefix(ROOT), code.co_qualname))


class Server:
    def __init__(self) -> None:
        config = Config(drain_seconds=0.2)
        self._worker = Worker(StepEngine(FakeRunner(), max_cache_bytes=1 << 20))
        self._worker.start()
        self._socket = socket.create_server(("127.0.0.1", 0))
        model = ServedModel.of(self._worker, config)
        self._server = DrainingServer(create_app([model], config), config.drain_seconds)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._worker.stop()

    def trace(self, case: Case, tracer: Tracer) -> set[tuple[str, str]]:
        connection = http.client.HTTPConnection(*self._socket.getsockname())
        connection.connect()
        time.sleep(0.2)  # until the connection is accepted: what comes before the request is not traced
        tracer.seen.clear()
        tracer.is_on = True
        body = json.dumps({"model": "fake", **case.body})
        connection.request("POST", case.path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        time.sleep(0.2)  # until what follows the last byte is done
        tracer.is_on = False
        connection.close()
        assert answer.status == 200, text
        return set(tracer.seen)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--files", action="store_true", help="list the files too")
    shows_files = parser.parse_args().files
    tracer = Tracer()
    server = Server()
    print("| request | files | functions |\n|---|---|---|")
    try:
        for case in CASES:
            seen = server.trace(case, tracer)
            files = sorted({file for file, _ in seen})
            print(f"| {case.name} | {len(files)} | {len(seen)} |")
            if shows_files:
                print("\n".join(f"    {file} {sum(1 for other, _ in seen if other == file)}" for file in files))
    finally:
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
