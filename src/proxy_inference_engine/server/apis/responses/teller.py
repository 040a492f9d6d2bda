"""Tells the store what responses in the background have said so far, and hears what other servers want of them.

So a stream can be resumed and a response cancelled at any server, and what was said before a crash is not lost.
"""

import asyncio
import logging

from proxy_inference_engine.errors import StoreError
from proxy_inference_engine.server.apis.responses.run import ResponseRuns
from proxy_inference_engine.store import NewFrames, ResponseId, Store

TELL_SECONDS = 0.25  # between two times
_logger = logging.getLogger(__name__)


class Teller:
    """Works while there are such responses. All of them are one write."""

    def __init__(self, runs: ResponseRuns, store: Store) -> None:
        self._runs = runs
        self._store = store
        self._num_told: dict[ResponseId, int] = {}
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin to tell, where that is not going on: one more response runs in the background."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        while self._runs.in_background() or self._runs.unsaved():
            try:
                await self._tell()
                await self._give_up()
            except StoreError as error:
                _logger.info("what was said in the background is told later: %s", error.message)
            await asyncio.sleep(TELL_SECONDS)

    async def _tell(self) -> None:
        runs = {ResponseId(owner, id_): run for owner, id_, run in self._runs.in_background()}
        told = {which: self._num_told.get(which, 0) for which in runs}
        news = {which: NewFrames(told[which], run.log.frames[told[which] :]) for which, run in runs.items()}
        if not runs:
            return
        heard = await self._store.add_said({which: new for which, new in news.items() if new.frames})
        self._num_told = {which: new.first + len(new.frames) for which, new in news.items()}
        for which, run in runs.items():
            if which in heard.cancelled:
                run.cancel()
            elif which not in heard.unfinished and not run.log.is_over:
                self._runs.drop(*which)  # somebody deleted it, or took this server for dead

    async def _give_up(self) -> None:
        """Have the store fail runs whose end it could not take: whoever sees only the store would wait for ever."""
        for owner, id_, run in self._runs.unsaved():
            await self._store.give_up(owner, id_)
            run.is_given_up = True
