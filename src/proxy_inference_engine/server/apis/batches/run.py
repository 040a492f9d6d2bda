"""Batches being answered: line by line through the routes, at the lowest priority, and on after a crash.

A line is answered as a request of its key would be. What was answered is in files as soon as it is; the object follows
about once a second. Knows when things happen; what a line says is in `lines.py`, what a batch says in `object.py`.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from proxy_inference_engine.errors import PieError, RateLimited
from proxy_inference_engine.server.apis.batches.lines import (
    BatchLine,
    LineChecker,
    LineProblem,
    RawLine,
    raw_lines,
    read_line,
)
from proxy_inference_engine.server.apis.batches.object import (
    BATCH,
    BatchEnd,
    RecordChange,
    begun,
    counted,
    ended,
    finalizing,
    refused,
)
from proxy_inference_engine.server.apis.batches.results import BatchResults
from proxy_inference_engine.server.apis.shared.file_objects import IN_THREAD, file_record
from proxy_inference_engine.server.http.access import Visit
from proxy_inference_engine.server.http.inside import Inside, InsideAnswer
from proxy_inference_engine.server.http.limits import RateLimits
from proxy_inference_engine.server.http.wire import dumps, new_id
from proxy_inference_engine.server.state import ServerState
from proxy_inference_engine.store import Record

T = TypeVar("T")
_logger = logging.getLogger(__name__)

SAVE_SECONDS = 1.0  # between two looks at the object, to note how far it is and whether somebody cancelled it
_MAX_TRIES = 30  # of a line that the server has no time for
_LONGEST_WAIT_S = 30.0
_LARGE_BYTES = 1024 * 1024  # a line that has more waits until no other such line is being answered
_ROOM_SECONDS = 0.2  # between two looks whether somebody waits for a model to be loaded
_ROUTE = "batch"  # in the log and the metrics
_EXPIRED = ("batch_expired", "This request could not be executed before the completion window expired.")


class BatchStopped(Exception):
    """No further line is to be answered: `end` is why, None: the server ends, and it goes on after that."""

    def __init__(self, end: BatchEnd | None, problem: Mapping[str, object] | None = None) -> None:
        super().__init__(end)
        self.end = end
        self.problem = problem


class BatchRun:
    """One batch from where it stands to its end. `gate` lets so many lines of all batches be answered at once."""

    def __init__(
        self,
        record: Record,
        state: ServerState,
        inside: Inside,
        gate: asyncio.Semaphore,
        limits: RateLimits | None,
        max_lines: int,
    ) -> None:
        self._record = record
        self._state = state
        self._inside = inside
        self._gate = gate
        self._limiter = None if limits is None else limits.of(record.owner)
        self._max_lines = max_lines
        self._owner = record.owner
        self._endpoint: str = record.body["endpoint"]
        self._results = BatchResults(state.store.files, record.owner, record.id)
        self._large = asyncio.Lock()
        self._stopped: asyncio.Future[BatchStopped] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = 0  # bytes that answers may have

    def stop(self, stopped: BatchStopped) -> None:
        """Harmless when it is being stopped already."""
        if not self._stopped.done():
            self._stopped.set_result(stopped)

    async def work(self, turn: asyncio.Lock) -> None:
        """`turn`: one batch of an owner after the other. Raises StoreError and OSError: it may be begun again later."""
        try:
            await self._wait(turn.acquire())
            try:
                await self._work()
            finally:
                turn.release()
        except BatchStopped as stopped:
            if stopped.end is not None:
                await self._finish(stopped.end, stopped.problem)

    async def _work(self) -> None:
        status = self._record.body["status"]
        if status == "cancelling":
            raise BatchStopped("cancelled")
        if status == "finalizing":
            await self._finish("completed")
            return
        if status == "validating" and not await self._validate():
            return
        await self._answer_all()
        await self._finish("completed")

    async def _wait(self, work: Coroutine[Any, Any, object]) -> None:
        """Wait until work is done. Raises BatchStopped where the batch is stopped first."""
        task = asyncio.ensure_future(work)
        try:
            ends: list[asyncio.Future[Any]] = [task, self._stopped]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self._stopped.result()
            task.result()
        finally:
            task.cancel()

    async def _thread(self, work: Callable[[], T]) -> T:
        return await self._state.threads.run(work, self._owner, IN_THREAD)

    async def _change(self, change: RecordChange) -> None:
        record = await self._state.store.change(BATCH, self._owner, self._record.id, change)
        if record is None:  # its time is over, or somebody removed it
            raise BatchStopped(None)
        self._record = record

    # Before anything is answered

    async def _validate(self) -> bool:
        """Every line. False: the batch has failed."""
        checker = LineChecker(self._endpoint, self._max_lines)
        try:
            async for chunk in self._chunks():
                if not await self._thread(partial(checker.check, chunk)):
                    break
            if not checker.num_lines:
                raise LineProblem("empty_file", "The input file has no requests.")
        except LineProblem as problem:
            checker.problems.append(problem.wire)
        if checker.problems:
            await self._change(refused(checker.problems))
            return False
        await self._change(begun(checker.num_lines))
        return True

    async def _chunks(self) -> AsyncGenerator[list[RawLine], None]:
        path = self._state.store.files.path(self._owner, self._record.body["input_file_id"])
        chunks: Iterator[list[RawLine]] = raw_lines(path)
        while True:
            self._check_stopped()
            try:
                chunk = await self._thread(lambda: next(chunks, None))
            except FileNotFoundError:
                raise LineProblem("input_file_deleted", "The input file is not there any more.") from None
            if chunk is None:
                return
            yield chunk

    def _check_stopped(self) -> None:
        if self._stopped.done():
            raise self._stopped.result()
        if time.time() >= self._record.body["expires_at"]:
            raise BatchStopped("expired")

    # Answering

    async def _answer_all(self) -> None:
        await self._thread(self._results.read)
        self._room = self._results.num_bytes + await self._thread(lambda: self._state.store.files.room(self._owner))
        saver = asyncio.ensure_future(self._save_often())
        try:
            async for chunk in self._chunks():
                for raw in chunk:
                    line = await self._thread(partial(read_line, raw, self._endpoint))
                    if line.custom_id not in self._results.done:
                        await self._begin(line)
            while tasks := list(self._tasks):
                await self._wait(asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED))
            self._check_stopped()
        except LineProblem as problem:
            raise BatchStopped("failed", problem.wire) from None
        finally:
            saver.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(saver, *self._tasks, return_exceptions=True)

    async def _begin(self, line: BatchLine) -> None:
        await self._wait(self._admitted())
        await self._wait(self._gate.acquire())
        try:
            self._check_stopped()
        except BatchStopped:
            self._gate.release()
            raise
        task = asyncio.get_running_loop().create_task(self._answer(line))
        self._tasks.add(task)
        task.add_done_callback(self._end_line)

    def _end_line(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._gate.release()
        if not task.cancelled() and task.exception() is not None:
            _logger.error("a line of a batch failed", exc_info=task.exception())
            self.stop(BatchStopped("failed", {"code": "server_error", "message": "The server failed.", "line": None}))

    async def _answer(self, line: BatchLine) -> None:
        if line.num_bytes > _LARGE_BYTES:
            async with self._large:
                await self._answer_line(line)
        else:
            await self._answer_line(line)

    async def _answer_line(self, line: BatchLine) -> None:
        body = (await self._state.threads.run(lambda: dumps(line.body), self._owner, line.num_bytes)).encode()
        request_id = new_id("req-")
        answer = await self._asked(body, request_id)
        if answer is None:
            return
        if self._results.num_bytes + len(answer.body) > self._room:
            reason = "The files of this key have no room for more answers."
            self.stop(BatchStopped("failed", {"code": "storage_full", "message": reason, "line": line.number}))
            return
        try:
            add = partial(self._results.add, line.custom_id, answer.status, request_id, answer.body)
            await self._state.threads.run(add, self._owner, len(answer.body))
        except PieError as error:
            self.stop(BatchStopped("failed", {"code": error.code, "message": error.message, "line": line.number}))

    async def _admitted(self) -> None:
        """When its key may ask for one more, and nobody waits for a model that ours may have to make room for.

        A key that was taken away may ask for nothing.
        """
        while True:
            if any(member.num_waiting for member in self._state.models.members):
                await asyncio.sleep(_ROOM_SECONDS)
                continue
            try:
                if not self._state.keys.keyring.knows(self._owner):
                    raise RateLimited("requests", retry_after_s=int(_LONGEST_WAIT_S))
                if self._limiter is not None:
                    self._limiter.admit()
                return
            except RateLimited as error:
                await asyncio.sleep(min(error.retry_after_s, _LONGEST_WAIT_S))

    async def _asked(self, body: bytes, request_id: str) -> InsideAnswer | None:
        """What the route says at last, when the server has time for it. None: the server ends."""
        wait_s = 1.0
        for number in range(1, _MAX_TRIES + 1):
            visit = Visit(request_id, self._owner, limiter=self._limiter, fills_idle=True)
            answer = await self._inside.post(self._endpoint, body, visit, _ROUTE)
            if visit.error_code == "shutting_down":
                self.stop(BatchStopped(None))
                return None
            if b"retry-after" not in answer.headers or number == _MAX_TRIES:
                break
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        return answer

    async def _save_often(self) -> None:
        """What the object says was answered is on the disk. Notices who cancels it elsewhere, and its time."""
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            try:
                await self._save()
                self._check_stopped()
            except BatchStopped as stopped:
                self.stop(stopped)
            except PieError:
                _logger.exception("how far a batch is could not be noted")
            if self._record.body["status"] == "cancelling":
                self.stop(BatchStopped("cancelled"))

    async def _save(self) -> None:
        await self._thread(self._results.sync)
        await self._change(counted(self._results.counts))

    # The end

    async def _finish(self, end: BatchEnd, problem: Mapping[str, object] | None = None) -> None:
        """Safe to do again from any point, for there may be a crash at any."""
        if not self._results.done:
            await self._thread(self._results.read)
        if end == "expired":
            await self._thread(self._miss_the_rest)
        if self._results.done:  # else they may have their names already, and were counted
            await self._save()
        if self._record.extra["output"] is None:
            await self._change(finalizing(new_id("file-"), new_id("file-")))
        output_id, errors_id = self._record.extra["output"], self._record.extra["errors"]
        published = await self._thread(lambda: self._results.publish(output_id, errors_id))
        names = [f"{self._record.id}_{kind}.jsonl" for kind in ("output", "error")]
        for (id_, num_bytes), name in zip(published, names, strict=True):
            if num_bytes:
                after_s = self._record.extra["expires_after_s"]
                await self._state.store.save(file_record(self._owner, id_, name, "batch_output", num_bytes, after_s))
        files = [id_ if num_bytes else None for id_, num_bytes in published]
        errors = None if problem is None else {"object": "list", "data": [{"param": None, **problem}]}
        await self._change(ended(end, output_file_id=files[0], error_file_id=files[1], errors=errors))

    def _miss_the_rest(self) -> None:
        path = self._state.store.files.path(self._owner, self._record.body["input_file_id"])
        with suppress(LineProblem, FileNotFoundError):
            for raw in (raw for chunk in raw_lines(path) for raw in chunk):
                line = read_line(raw, self._endpoint)
                if line.custom_id not in self._results.done:
                    self._results.miss(line.custom_id, *_EXPIRED)
