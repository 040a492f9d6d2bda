"""Vectors from a far engine's `/v1/embeddings`: token ids in, numbers back.

Nobody has seen anything of an answer before it is whole: so an engine that fails leaves the texts to the next one.
"""

import asyncio
import base64
import json
from collections.abc import Sequence

import numpy as np

from proxy_inference_engine.errors import InvalidRequest, PieError, shorten
from proxy_inference_engine.far.engines import Engines, FarEngine, embedding_work
from proxy_inference_engine.far.failures import (
    as_error,
    is_our_own,
    is_passing,
    too_many_connections,
    unavailable,
)
from proxy_inference_engine.far.wire import FarFailure, read_failure
from proxy_inference_engine.runners.base import Vector

_PATH = "/v1/embeddings"
_MAX_MESSAGE = 300


class _Answer:
    """A `FarReader` of one answer as a whole."""

    def __init__(self) -> None:
        self.done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.status = 0
        self.retry_after: str | None = None
        self._pieces: list[bytes] = []

    def on_head(self, status: int, retry_after: str | None) -> None:
        self.status, self.retry_after = status, retry_after

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_complete(self) -> None:
        if not self.done.done():
            self.done.set_result(b"".join(self._pieces))

    def on_lost(self, *, is_stale: bool) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionResetError("the connection broke"))


async def embed_far(engines: Engines, texts: Sequence[Sequence[int]], timeout_s: float) -> list[Vector]:
    """One vector a text. Cancelling the call closes the connection. Raises PieError."""
    tried: set[FarEngine] = set()
    work = embedding_work(texts)
    while (engine := engines.choose_embedder(tried)) is not None:
        tried.add(engine)
        engine.work += work
        try:
            vectors = await _embed_at(engine, texts, timeout_s)
        except OSError as error:  # a TimeoutError is one
            if is_our_own(error):
                raise too_many_connections() from None
            engine.fail(str(error) or type(error).__name__)
        else:
            engine.succeed()
            return vectors
        finally:
            engine.work -= work
    raise unavailable()


async def _embed_at(engine: FarEngine, texts: Sequence[Sequence[int]], timeout_s: float) -> list[Vector]:
    """Raises OSError for a failure of the engine, and PieError for one of the request."""
    asked = {"input": [list(ids) for ids in texts], "encoding_format": "base64"}
    if engine.facts is not None:
        asked["model"] = engine.facts.model
    async with asyncio.timeout(timeout_s):
        answer = await _post(engine, json.dumps(asked, separators=(",", ":")).encode())
    body = answer.done.result()
    if answer.status != 200:
        failure = read_failure(answer.status, body)
        if is_passing(failure):
            raise OSError(f"status {failure.status}: {shorten(failure.message)}")
        raise _refusal(failure, answer.retry_after)
    try:
        data = sorted(json.loads(body)["data"], key=lambda each: int(each["index"]))
        vectors = [np.frombuffer(base64.b64decode(each["embedding"]), np.float32) for each in data]
    except (ValueError, KeyError, TypeError):
        raise OSError("it wrote what nobody understands") from None
    if len(vectors) != len(texts):
        raise OSError(f"it made {len(vectors)} vectors of {len(texts)} texts")
    return vectors


async def _post(engine: FarEngine, body: bytes) -> _Answer:
    """Once more where a connection that was kept turns out to be closed."""
    connection = engine.connections.idle()
    while True:
        answer, was_kept = _Answer(), connection is not None
        connection = connection or await engine.connections.connect()
        try:
            engine.connections.post(connection, _PATH, body, answer)
            await answer.done
            return answer
        except ConnectionResetError:
            if not was_kept:
                raise
        finally:
            if not answer.done.done() or answer.done.cancelled():
                connection.close()
        connection = None


def _refusal(failure: FarFailure, retry_after: str | None) -> PieError:
    error = as_error(failure, retry_after)
    if not isinstance(error, InvalidRequest):
        return error
    message = shorten(failure.message, _MAX_MESSAGE)
    return InvalidRequest(f"The engine that computes this model refuses the texts: {message}", param="input")
