"""The bytes of a file, piece by piece while the client reads."""

import os
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from proxy_inference_engine.errors import NotFound
from proxy_inference_engine.server.apis.shared.file_objects import IN_THREAD
from proxy_inference_engine.server.http.access import visit_of
from proxy_inference_engine.server.http.body import ClientGone
from proxy_inference_engine.server.http.errors import as_pie_error
from proxy_inference_engine.server.http.lifetime import supervise
from proxy_inference_engine.server.http.sse import drop
from proxy_inference_engine.server.state import ServerState

_PIECE_BYTES = 256 * 1024


class FileContent(Response):
    """Never looks finished when it is not: it has a length, and breaks off."""

    def __init__(self, path: Path, file: dict[str, Any], state: ServerState) -> None:
        super().__init__()
        self._path = path
        self._file = file
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        owner, threads = visit_of(scope).tenant, self._state.threads
        try:
            descriptor = await threads.run(lambda: os.open(self._path, os.O_RDONLY), owner, IN_THREAD)
        except OSError:  # deleted this very moment
            raise NotFound("There is no file with this id.", param="file_id") from None
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self._head()})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
                return
            await supervise(self._write(send, descriptor, owner), receive, self._state.drain)
        except ClientGone:
            visit_of(scope).status = 499
        except Exception as error:
            visit_of(scope).error_code = as_pie_error(error).code
            await drop(scope, receive)
        finally:
            os.close(descriptor)

    def _head(self) -> list[tuple[bytes, bytes]]:
        name = quote(self._file["filename"], safe="")
        return [
            (b"content-type", b"application/octet-stream"),
            (b"content-length", str(self._file["bytes"]).encode()),
            (b"content-disposition", f"attachment; filename*=utf-8''{name}".encode()),
            (b"x-content-type-options", b"nosniff"),
        ]

    async def _write(self, send: Send, descriptor: int, owner: str) -> None:
        num_left: int = self._file["bytes"]
        while num_left > 0:
            size = min(_PIECE_BYTES, num_left)
            data = await self._state.threads.run(partial(os.read, descriptor, size), owner, IN_THREAD)
            if not data:
                raise NotFound("The file has fewer bytes than it should.")
            num_left -= len(data)
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
