"""Vectors from a far engine's `/v1/embeddings`: token ids in, numbers back."""

import asyncio
import base64
import json
from collections.abc import Sequence

import numpy as np

from proxy_inference_engine.errors import EngineFailure, InvalidRequest, PieError, shorten
from proxy_inference_engine.far.engines import FarEngine
from proxy_inference_engine.far.failures import BROKE_OFF, unavailable
from proxy_inference_engine.far.wire import read_failure
from proxy_inference_engine.runners.base import Vector

_PATH = "/v1/embeddings"
_MAX_MESSAGE = 300


class _Whole:
    """A `FarReader` of one answer as a whole."""

    def __init__(self) -> None:
        self.done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._pieces: list[bytes] = []

    def on_head(self, status: int, retry_after: str | None) -> None:
        self._status = status

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_complete(self) -> None:
        body = b"".join(self._pieces)
        if self.done.done():
            return
        if self._status == 200:
            self.done.set_result(body)
        else:
            self.done.set_exception(_error(self._status, body))

    def on_lost(self, *, is_stale: bool) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionResetError(is_stale))


async def embed_far(engine: FarEngine, texts: Sequence[Sequence[int]], timeout_s: float) -> list[Vector]:
    """One vector a text. Cancelling the call closes the connection. Raises PieError."""
    asked = {"input": [list(ids) for ids in texts], "encoding_format": "base64"}
    if engine.facts is not None:
        asked["model"] = engine.facts.model
    body = json.dumps(asked, separators=(",", ":")).encode()
    try:
        async with asyncio.timeout(timeout_s):
            answer = await _post(engine, body)
    except TimeoutError:
        raise unavailable() from None
    except OSError as error:
        engine.fail(str(error) or "the connection broke")
        raise unavailable() from None
    try:
        data = sorted(json.loads(answer)["data"], key=lambda each: int(each["index"]))
        vectors = [np.frombuffer(base64.b64decode(each["embedding"]), np.float32) for each in data]
    except (ValueError, KeyError, TypeError):
        raise EngineFailure(BROKE_OFF) from None
    if len(vectors) != len(texts):
        raise EngineFailure(BROKE_OFF)
    return vectors


async def _post(engine: FarEngine, body: bytes) -> bytes:
    """Once more where a connection that was kept turns out to be closed."""
    connection = engine.connections.idle()
    while True:
        reader, was_kept = _Whole(), connection is not None
        connection = connection or await engine.connections.connect()
        try:
            engine.connections.post(connection, _PATH, body, reader)
            return await reader.done
        except ConnectionResetError:
            if not was_kept:
                raise
        finally:
            if not reader.done.done() or reader.done.cancelled():
                connection.close()
        connection = None


def _error(status: int, body: bytes) -> PieError:
    failure = read_failure(status, body)
    if status >= 500:
        return EngineFailure(BROKE_OFF)
    return InvalidRequest(
        f"The engine that computes this model refuses the texts: {shorten(failure.message, _MAX_MESSAGE)}",
        param="input",
    )
