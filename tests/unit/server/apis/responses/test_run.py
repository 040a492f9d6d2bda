"""Runs apart from any connection: kept before their end is seen, given up, cancelled, ended with the server."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from proxy_inference_engine.engine.base import Item
from proxy_inference_engine.errors import EngineFailure, StoreError, Unavailable
from proxy_inference_engine.served.stream import AnswerStream
from proxy_inference_engine.server.apis.responses.run import AsWritten, FrameLog, ResponseRun, ResponseRuns
from proxy_inference_engine.server.http.lifetime import Drain
from proxy_inference_engine.types import Failed, Finished
from tests.polling import HANG_S
from tests.unit.served.scripted import TIMINGS, ScriptedEngine, stream_of, text_items
from tests.unit.server.apis.responses.test_writer import make

WORDS = [text_items("a"), text_items("b")]
END = [Item(0, Finished("stop", TIMINGS))]
FOREVER = 10 * HANG_S


def answer(end: list[Item] | Exception | None = END) -> tuple[ScriptedEngine, AnswerStream]:
    """Says two words; then ends, fails, or goes on for ever."""
    return stream_of([*WORDS, FOREVER if end is None else end])


class Shelf:
    """Keeps what it is given, or refuses."""

    def __init__(self, error: Exception | None = None) -> None:
        self.kept: list[dict[str, Any]] = []
        self.frames: list[str] = []
        self._error = error

    async def keep(self, response: dict[str, Any], frames: Sequence[str]) -> None:
        await asyncio.sleep(0)
        if self._error is not None:
            raise self._error
        self.kept.append(response)
        self.frames = list(frames)


def make_run(
    answered: tuple[ScriptedEngine, AnswerStream], shelf: Shelf | None = None, *, is_background: bool = False
) -> ResponseRun:
    stream = answered[1]
    writer = make(stream.counts, is_background=is_background)
    return ResponseRun(writer, stream, None if shelf is None else shelf.keep, is_background=is_background)


def events(log: FrameLog) -> list[dict[str, Any]]:
    return [json.loads(frame.split("data: ")[1]) for frame in log.frames]


async def test_it_is_kept_before_its_end_is_seen() -> None:
    shelf, (engine, stream) = Shelf(), answer()
    run = make_run((engine, stream), shelf)
    await run.work(Drain())
    assert await run.result() == shelf.kept[0] == run.response and run.response["status"] == "completed"
    assert shelf.frames == run.log.frames and engine.was_cancelled
    assert [event["sequence_number"] for event in events(run.log)] == list(range(len(run.log.frames)))


async def test_what_cannot_be_kept_fails() -> None:
    run = make_run(answer(), Shelf(StoreError("full", code="storage_full")))
    await run.work(Drain())
    *_, error, failed = events(run.log)
    assert error["error"]["code"] == "storage_full" and failed["response"]["status"] == "failed"
    assert not any(event["type"] == "response.completed" for event in events(run.log)) and not run.is_saved
    with pytest.raises(StoreError):
        await run.result()


async def test_a_broken_generation_fails_and_is_kept() -> None:
    shelf = Shelf()
    run = make_run(answer([Item(0, Failed(EngineFailure("broken")))]), shelf)
    await run.work(Drain())
    assert shelf.kept[0]["status"] == "failed"
    with pytest.raises(EngineFailure):
        await run.result()


async def test_an_error_that_nobody_expected_shows_nothing() -> None:
    run = make_run(answer(ValueError("secret")))
    await run.work(Drain())
    assert "secret" not in "".join(run.log.frames) and events(run.log)[-1]["type"] == "response.failed"


async def until_words(run: ResponseRun) -> None:
    while sum("delta" in frame for frame in run.log.frames) < len(WORDS):
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_abandoned", [False, True])
async def test_cancel_keeps_and_abandon_does_not(is_abandoned: bool) -> None:
    shelf, (engine, stream) = Shelf(), answer(None)
    run = make_run((engine, stream), shelf)
    work = asyncio.ensure_future(run.work(Drain()))
    await until_words(run)
    run.abandon() if is_abandoned else run.cancel()
    await work
    assert engine.was_cancelled and run.response["status"] == "cancelled"
    assert [response["status"] for response in shelf.kept] == ([] if is_abandoned else ["cancelled"])
    run.abandon()
    run.cancel()


async def test_the_end_of_the_server_is_its_end() -> None:
    drain, shelf, runs = Drain(), Shelf(), ResponseRuns()
    run = make_run(answer(None), shelf, is_background=True)
    runs.start("anna", "resp_1", run, drain)
    await until_words(run)
    assert runs.find("anna", "resp_1") is run and runs.find("ben", "resp_1") is None
    drain.end()
    await asyncio.wait_for(runs.join(), HANG_S)
    assert shelf.kept[0]["status"] == "failed" and runs.find("anna", "resp_1") is None
    with pytest.raises(Unavailable):
        await run.result()


async def test_an_end_that_could_not_be_stored_is_remembered() -> None:
    runs = ResponseRuns()
    run = make_run(answer(), Shelf(StoreError("full")), is_background=True)
    runs.start("anna", "resp_1", run, Drain())
    await runs.join()
    found = runs.find("anna", "resp_1")
    assert found is not None and found.response["status"] == "failed"
    assert runs.drop("anna", "resp_1") and not runs.drop("anna", "resp_1")


async def follow(frames: AsyncGenerator[str, None]) -> str:
    writer = AsWritten()
    text = ""
    async for news in frames:
        text += writer.feed(news)
    return text + writer.finish()


async def test_followers_see_everything_whenever_they_come() -> None:
    run = make_run(answer())
    early = asyncio.ensure_future(follow(run.log.follow()))
    work = asyncio.ensure_future(run.work(Drain()))
    await until_words(run)
    middle = asyncio.ensure_future(follow(run.log.follow(4)))
    await work
    frames = run.log.frames
    assert await early == "".join(frames) == await follow(run.log.follow())
    assert await middle == "".join(frames[4:])
    assert await follow(run.log.follow(1000)) == ""
