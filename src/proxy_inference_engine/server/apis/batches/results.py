"""What a batch has answered so far: one line a request, appended as it comes, and found again after a crash.

For threads: it waits for the disk.
"""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from proxy_inference_engine.server.apis.batches.object import BatchCounts
from proxy_inference_engine.server.http.wire import dumps, new_id
from proxy_inference_engine.store import FileFolder
from proxy_inference_engine.store.files import append_line, sync, sync_folder

_OUTPUT, _ERRORS = ".output", ".errors"


class BatchResults:
    """Answers go into one file and errors into another; both have the batch's name until it is over."""

    def __init__(self, files: FileFolder, owner: str, batch_id: str) -> None:
        self.counts = BatchCounts()
        self.done: set[str] = set()  # custom ids
        self.num_bytes = 0
        self._lock = threading.Lock()  # answers come in several threads
        self._files = files
        self._owner = owner
        self._output = files.path(owner, batch_id + _OUTPUT)
        self._errors = files.path(owner, batch_id + _ERRORS)

    def read(self) -> None:
        """What is there already. A line that a crash cut off is none, and is cut off whole."""
        for path in (self._output, self._errors):
            for line in _whole_lines(path):
                self.done.add(line["custom_id"])
                response = line["response"]
                self.counts.add(0 if response is None else response["status_code"], _usage(response))
            with suppress(FileNotFoundError):
                self.num_bytes += path.stat().st_size

    def add(self, custom_id: str, status: int, request_id: str, body: bytes) -> None:
        """An answer of a route, as it is. Raises StoreError: then it does not count."""
        head = dumps({"id": new_id("batch_req_"), "custom_id": custom_id})[:-1]
        response = dumps({"status_code": status, "request_id": request_id})[:-1]
        text = body if b"\n" not in body else dumps(json.loads(body)).encode()
        line = f'{head},"response":{response},"body":'.encode() + text + b'},"error":null}\n'
        self._append(self._output if status == 200 else self._errors, line)
        self.done.add(custom_id)
        self.counts.add(status, json.loads(body).get("usage") or {} if status == 200 else {})

    def miss(self, custom_id: str, code: str, message: str) -> None:
        """A request that was never made."""
        error = {"code": code, "message": message}
        line = {"id": new_id("batch_req_"), "custom_id": custom_id, "response": None, "error": error}
        self._append(self._errors, dumps(line).encode() + b"\n")
        self.done.add(custom_id)
        self.counts.add(0, {})

    def _append(self, path: Path, line: bytes) -> None:
        with self._lock:
            append_line(path, line)
            self.num_bytes += len(line)

    def sync(self) -> None:
        """What was added is on the disk when this returns."""
        sync(self._output)
        sync(self._errors)

    def publish(self, output_id: str, errors_id: str) -> list[tuple[str, int]]:
        """Give the files their own names. Returns the name and size of each, 0: there is none. May be called again."""
        self.sync()
        published = []
        for path, id_ in ((self._output, output_id), (self._errors, errors_id)):
            named = self._files.path(self._owner, id_)
            with suppress(FileNotFoundError):
                path.rename(named)
            published.append((id_, named.stat().st_size if named.exists() else 0))
        if self._output.parent.exists():
            sync_folder(self._output.parent)
        return published


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        file = path.open("r+b")
    except FileNotFoundError:
        return
    with file:
        end = 0
        for data in iter(file.readline, b""):
            try:
                line = json.loads(data) if data.endswith(b"\n") else None
            except ValueError:
                line = None
            if not isinstance(line, dict):
                break
            end += len(data)
            yield line
        os.truncate(file.fileno(), end)


def _usage(response: dict[str, Any] | None) -> dict[str, Any]:
    usage = {} if response is None else response["body"].get("usage")
    return usage if isinstance(usage, dict) else {}
