"""The batches of this server: those that are begun here, and those that a server left behind which is gone."""

import asyncio
import logging
from collections import defaultdict

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StoreError
from proxy_inference_engine.server.apis.batches.object import BATCH, cancelling, is_over
from proxy_inference_engine.server.apis.batches.run import BatchRun, BatchStopped
from proxy_inference_engine.server.apis.shared.file_objects import FILE, IN_THREAD
from proxy_inference_engine.server.http.inside import Inside
from proxy_inference_engine.server.http.limits import RateLimits
from proxy_inference_engine.server.state import ServerState
from proxy_inference_engine.store import Record
from proxy_inference_engine.store.files import Held

_logger = logging.getLogger(__name__)
_TIDIED = "the files of the store"


class BatchRuns:
    """Call it in the event loop."""

    def __init__(self, state: ServerState, inside: Inside, config: Config, limits: RateLimits | None) -> None:
        self._state = state
        self._inside = inside
        self._limits = limits
        self._max_lines = config.batch_max_lines
        self._gate = asyncio.Semaphore(config.slots)
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # names of keys are few
        self._runs: dict[tuple[str, str], BatchRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._put_off: dict[tuple[str, str], None] = {}  # to be begun at the next look, the oldest first
        self._is_stopped = False

    def start(self, record: Record) -> None:
        """Harmless where it is being answered already, and when the server ends: then it goes on later."""
        key = record.owner, record.id
        if key in self._runs or self._is_stopped or is_over(record):
            return
        run = BatchRun(record, self._state, self._inside, self._gate, self._limits, self._max_lines)
        self._runs[key] = run
        task = asyncio.get_running_loop().create_task(self._work(key, run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, key: tuple[str, str], run: BatchRun) -> None:
        try:
            await run.work(self._turns[key[0]])
        except (StoreError, OSError):
            _logger.exception("a batch cannot go on now; it is tried again soon")
            self._put_off[key] = None
        except Exception:
            _logger.exception("a batch failed")
        finally:
            del self._runs[key]

    async def cancel(self, owner: str, id_: str) -> Record | None:
        """None: there is no such batch. One that is over stays as it is."""
        record = await self._state.store.change(BATCH, owner, id_, cancelling)
        run = self._runs.get((owner, id_))
        if record is not None and run is not None and not is_over(record):
            run.stop(BatchStopped("cancelled"))
        return record

    async def resume(self) -> None:
        """Go on with what servers left behind that are gone, and with what the disk kept from going on here."""
        self._put_off.update(dict.fromkeys(await self._state.store.adopt_batches()))
        for owner, id_ in list(self._put_off):
            record = await self._state.store.load(BATCH, owner, id_)
            del self._put_off[owner, id_]
            if record is not None:
                _logger.info("a batch goes on", extra={"fields": {"id": id_}})
                self.start(record)

    async def tidy(self) -> None:
        """Remove files that nobody knows of: their time is over, or a crash cut them off."""
        files = self._state.store.files
        for held in await self._state.threads.run(files.lost, _TIDIED, IN_THREAD):
            if not await self._is_known(held):
                files.delete(held.owner, held.name)

    async def _is_known(self, held: Held) -> bool:
        id_ = held.name.partition(".")[0]
        kind = BATCH if id_.startswith("batch_") else FILE
        is_whole = id_ == held.name or kind == BATCH
        return is_whole and await self._state.store.load(kind, held.owner, id_) is not None

    async def stop(self) -> None:
        """The server ends. What is being answered now is answered after that, from the beginning of its line."""
        self._is_stopped = True
        for run in self._runs.values():
            run.stop(BatchStopped(None))
        await asyncio.gather(*self._tasks, return_exceptions=True)
