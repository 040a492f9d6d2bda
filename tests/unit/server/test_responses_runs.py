"""Runs apart from any connection: kept before their end is seen, given up, cancelled, ended with the server."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from proxy_inference_engine.errors import EngineFailure, StoreError, Unavailable
from proxy_inference_engine.output.events import Ended, TextDelta
from proxy_inference_engine.server.background import Following, Log, Run, Runs
from proxy_inference_engine.server.generation import Step
from proxy_inference_engine.server.history import packed, unpacked
from proxy_inference_engine.server.supervise import Drain
from tests.unit.server.scripted import TIMINGS
from tests.unit.server.test_responses_events import make

WORDS = [TextDelta("a"), TextDelta("b")]
END = Ended("stop", None, 2, TIMINGS)


class Source:
    """Says two words; then ends, fails, or goes on for ever."""

    def __init__(self, end: Ended | Exception | None = END) -> None:
        self._end = end
        self.is_cancelled = False

    async def steps(self) -> AsyncGenerator[Step, None]:
        for word in WORDS:
            yield [(0, word)]
            await asyncio.sleep(0)
        if isinstance(self._end, Exception):
            raise self._end
        if self._end is None:
            await asyncio.sleep(60)
        else:
            yield [(0, self._end)]

    def cancel(self) -> None:
        self.is_cancelled = True


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


def events(log: Log) -> list[dict[str, Any]]:
    return [json.loads(frame.split("data: ")[1]) for frame in log.frames]


async def test_it_is_kept_before_its_end_is_seen() -> None:
    shelf, source = Shelf(), Source()
    run = Run(make(), source, shelf.keep)
    await run.work(Drain())
    assert await run.result() == shelf.kept[0] == run.response and run.response["status"] == "completed"
    assert shelf.frames == run.log.frames and source.is_cancelled
    assert [event["sequence_number"] for event in events(run.log)] == list(range(len(run.log.frames)))


async def test_what_cannot_be_kept_fails() -> None:
    run = Run(make(), Source(), Shelf(StoreError("full", code="storage_full")).keep)
    await run.work(Drain())
    *_, error, failed = events(run.log)
    assert error["error"]["code"] == "storage_full" and failed["response"]["status"] == "failed"
    assert not any(event["type"] == "response.completed" for event in events(run.log)) and not run.is_saved
    with pytest.raises(StoreError):
        await run.result()


async def test_a_broken_generation_fails_and_is_kept() -> None:
    shelf = Shelf()
    run = Run(make(), Source(EngineFailure("broken")), shelf.keep)
    await run.work(Drain())
    assert shelf.kept[0]["status"] == "failed"
    with pytest.raises(EngineFailure):
        await run.result()


async def test_an_error_that_nobody_expected_shows_nothing() -> None:
    run = Run(make(), Source(ValueError("secret")), None)
    await run.work(Drain())
    assert "secret" not in "".join(run.log.frames) and events(run.log)[-1]["type"] == "response.failed"


async def until_words(run: Run) -> None:
    while sum("delta" in frame for frame in run.log.frames) < len(WORDS):
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_abandoned", [False, True])
async def test_cancel_keeps_and_abandon_does_not(is_abandoned: bool) -> None:
    shelf, source = Shelf(), Source(None)
    run = Run(make(), source, shelf.keep)
    work = asyncio.ensure_future(run.work(Drain()))
    await until_words(run)
    run.abandon() if is_abandoned else run.cancel()
    await work
    assert source.is_cancelled and run.response["status"] == "cancelled"
    assert [response["status"] for response in shelf.kept] == ([] if is_abandoned else ["cancelled"])
    run.abandon()
    run.cancel()


async def test_the_end_of_the_server_is_its_end() -> None:
    drain, shelf, runs = Drain(), Shelf(), Runs()
    run = Run(make(is_background=True), Source(None), shelf.keep, is_background=True)
    runs.start("anna", "resp_1", run, drain)
    await until_words(run)
    assert runs.find("anna", "resp_1") is run and runs.find("ben", "resp_1") is None
    drain.end()
    await asyncio.wait_for(runs.join(), 5)
    assert shelf.kept[0]["status"] == "failed" and runs.find("anna", "resp_1") is None
    with pytest.raises(Unavailable):
        await run.result()


async def test_an_end_that_could_not_be_stored_is_remembered() -> None:
    runs = Runs()
    run = Run(make(is_background=True), Source(), Shelf(StoreError("full")).keep, is_background=True)
    runs.start("anna", "resp_1", run, Drain())
    await runs.join()
    found = runs.find("anna", "resp_1")
    assert found is not None and found.response["status"] == "failed"
    assert runs.drop("anna", "resp_1") and not runs.drop("anna", "resp_1")


async def follow(following: Following) -> str:
    text = ""
    async for step in following.steps():
        text += following.feed(step)
    return text + following.finish()


async def test_followers_see_everything_whenever_they_come() -> None:
    run = Run(make(), Source(), None)
    early = asyncio.ensure_future(follow(Following(run.log)))
    work = asyncio.ensure_future(run.work(Drain()))
    await until_words(run)
    middle = asyncio.ensure_future(follow(Following(run.log, first=4)))
    await work
    frames = run.log.frames
    assert await early == "".join(frames) == await follow(Following(run.log))
    assert await middle == "".join(frames[4:])
    assert await follow(Following(run.log, first=1000)) == ""


def test_frames_take_little_room() -> None:
    frames = [
        f'event: response.output_text.delta\ndata: {{"delta":"ü {n}","item_id":"{"x" * 36}"}}\n\n' for n in range(999)
    ]
    assert unpacked(packed(frames)) == frames and len(packed(frames)) < len("".join(frames)) / 10
    assert unpacked(packed([])) == []
