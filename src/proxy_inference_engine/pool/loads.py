"""What goes into memory and out of it: one load at a time, for all who wait for it, within one budget.

A model that is in use is never unloaded. The one that nobody used for the longest time goes first, before the load that
needs its room. Event loop only.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import takewhile
from typing import Any

from proxy_inference_engine.engine.stats import Stats, total
from proxy_inference_engine.errors import EngineError, PieError, Unavailable
from proxy_inference_engine.pool.member import Member, ModelLoader
from proxy_inference_engine.served.model import ServedModel

_LOAD_SECONDS = 900.0  # then a load is given up: it hangs, and others wait behind it
_ROOM_SECONDS = 300.0  # that a load waits for others to become idle
_PATIENCE_SECONDS = 10.0  # of these; then those in its way take nothing new
_AGAIN_SECONDS = 5.0  # after a load failed, everybody gets the same answer for so long
_log = logging.getLogger(__name__)


class DoesNotFit(EngineError):
    """However many others were unloaded."""

    status = 503
    code = "model_does_not_fit"


class LoadFailed(Unavailable):
    code = "model_load_failed"


class Loads:
    def __init__(
        self, members: list[Member], loader: ModelLoader, max_bytes: int | None, clock: Callable[[], float]
    ) -> None:
        self.max_bytes = max_bytes
        self._members = members
        self._loader = loader
        self._clock = clock
        self._turn = asyncio.Lock()  # whoever changes what is in memory
        self._freed = asyncio.Event()  # set whenever something may have become idle
        self._timers: dict[Member, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Future[object]] = set()
        self._retired: list[Member] = []  # not listed any more, and not gone yet
        self.gone = {member.id: Stats() for member in members}  # what unloaded models had counted

    def add(self, member: Member) -> None:
        self._members.append(member)
        self.gone[member.id] = Stats()

    @property
    def kept_bytes(self) -> int:
        """Bytes that no load can have, because the models that take them stay."""
        return sum(each.num_bytes for each in self.everyone if each.is_pinned or each.is_stuck)

    @property
    def used_bytes(self) -> int:
        return sum(member.num_bytes for member in self.everyone)

    @property
    def everyone(self) -> list[Member]:
        """All members, those that are not listed any more included."""
        return [*self._members, *self._retired]

    def loading(self, member: Member) -> asyncio.Task[None]:
        """The load under way, begun where there is none, for everybody who waits.

        Raises Unavailable where it is not listed any more: whoever asks again finds what is.
        """
        if member.loading is None:
            if member.is_retired:
                raise Unavailable(f"The model {member.id!r} was changed or removed just now.", retry_after_s=1)
            if member.state == "unloaded":
                member.state = "waiting"
            member.loading = asyncio.get_running_loop().create_task(self._bring(member))
            member.loading.add_done_callback(lambda task: self._note_end(member, task))
        return member.loading

    def _note_end(self, member: Member, task: asyncio.Task[None]) -> None:
        member.loading = None
        if not task.cancelled():
            task.exception()  # nobody may wait for it
        if member.is_retired:
            self.note_idle(member)

    async def _bring(self, member: Member) -> None:
        error = member.error
        if error is not None and (member.is_stuck or self._clock() - member.failed_at < _AGAIN_SECONDS):
            raise error.with_traceback(None)  # it would keep the frames of all who got it, and what they asked
        await self._wait_for_former(member)
        async with self._turn:
            if member.state == "ready":  # its room was not needed after all
                return
            if member.is_retired and not member.num_waiting:
                return
            member.state = "waiting"
            try:
                num_bytes = await self._loader.need(member.entry)
                await self._make_room(member, num_bytes)
                await self._load(member, num_bytes)
            except PieError as error:
                self._note_failure(member, error)
                raise
            except Exception as error:
                _log.exception("%s could not be loaded", member.id)
                failure = LoadFailed(f"The model {member.id!r} could not be loaded.")
                self._note_failure(member, failure)
                raise failure from error

    async def _wait_for_former(self, member: Member) -> None:
        """One of the same name, with other settings, is to be gone first. Raises Unavailable."""
        began = self._clock()
        while self._has_former(member):
            if self._clock() - began >= _ROOM_SECONDS:
                raise _no_room(member)
            self._freed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._freed.wait(), _PATIENCE_SECONDS)

    def _has_former(self, member: Member) -> bool:
        """Whether a retired member of the same name goes first. The member may be retired by now itself."""
        before = takewhile(lambda each: each is not member, self._retired)
        return any(each.id == member.id for each in before)

    def _note_failure(self, member: Member, error: PieError) -> None:
        # The operator is told where the file lies, which clients are not.
        _log.warning("%s is not loaded: %s", member.id, error.__cause__ or error)
        member.state, member.error, member.failed_at = "failed", error, self._clock()

    async def _load(self, member: Member, num_bytes: int) -> None:
        member.state, member.num_bytes, member.error = "loading", num_bytes, None
        began = self._clock()
        task = asyncio.ensure_future(self._loader.load(member.entry, member.progress))
        await asyncio.wait([task], timeout=_LOAD_SECONDS)
        if not task.done():
            task.add_done_callback(lambda _: asyncio.ensure_future(self._tidy(member, task)))
            seconds = round(self._clock() - began)
            raise LoadFailed(f"Loading the model {member.id!r} took more than {seconds} s: it was given up.")
        if task.exception() is not None:
            member.num_bytes = 0
        member.adopt(task.result(), num_bytes)
        _log.info("%s is loaded, in %.1f s", member.id, self._clock() - began)
        self.note_idle(member)

    async def _tidy(self, member: Member, task: "asyncio.Future[ServedModel]") -> None:
        """A load that was given up ended after all: only now its memory can be given back."""
        with suppress(Exception):
            await self._loader.unload(task.result())
        member.num_bytes = 0
        self.note_idle(member)

    # Room

    async def _make_room(self, member: Member, num_bytes: int) -> None:
        """Unload who is idle until there is room; wait for who is not. Raises DoesNotFit, or Unavailable."""
        if self.max_bytes is None:
            return
        self._check_fits(member, num_bytes)
        began = self._clock()
        try:
            while self.used_bytes + num_bytes > self.max_bytes:
                victims = self._victims(self.used_bytes + num_bytes - self.max_bytes)
                if victims is None:
                    await self._wait_for_idle(member, num_bytes, began)
                    continue
                # One, and another look: while it goes, somebody may begin to use the next, or pin it.
                await self._unload(victims[0])
        finally:
            for each in self.everyone:
                each.is_leaving = False

    def _check_fits(self, member: Member, num_bytes: int) -> None:
        pinned = self.kept_bytes
        assert self.max_bytes is not None
        if pinned + num_bytes > self.max_bytes:
            beside = f" beside {_mib(pinned)} of models that stay" if pinned else ""
            raise DoesNotFit(
                f"The model {member.id!r} needs {_mib(num_bytes)} of memory{beside}; all models together may have "
                f"{_mib(self.max_bytes)}."
            )

    def _victims(self, num_bytes: int) -> list[Member] | None:
        """Idle ones that have so many bytes together, the least recently used first; None: there are too few."""
        return _enough([each for each in self._members if each.is_idle and not each.is_pinned], num_bytes)

    async def _wait_for_idle(self, member: Member, num_bytes: int, began: float) -> None:
        waited = self._clock() - began
        if waited >= _ROOM_SECONDS:
            raise _no_room(member)
        if waited >= _PATIENCE_SECONDS:
            assert self.max_bytes is not None
            wanted = self.used_bytes + num_bytes - self.max_bytes
            for each in (
                _enough([one for one in self._members if one.state == "ready" and not one.is_pinned], wanted) or ()
            ):
                each.is_leaving = True
        self._freed.clear()
        if self._victims(self.used_bytes + num_bytes - (self.max_bytes or 0)) is not None:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._freed.wait(), _PATIENCE_SECONDS)

    async def unload(self, member: Member) -> bool:
        """False: it is in use, and stays."""
        async with self._turn:
            if member.state == "ready" and not member.is_idle:
                return False
            await self._unload(member)
        return True

    async def _unload(self, member: Member) -> None:
        model = member.model
        if model is None:
            return
        member.state = "unloading"
        self._forget_timer(member)
        stats = model.answerer.stats()
        try:
            await self._loader.unload(model)
        finally:
            self.gone[member.id] = total((self.gone.get(member.id, Stats()), stats.counters()))
            member.model, member.num_bytes, member.state, member.is_leaving = None, 0, "unloaded", False
            _log.info("%s is unloaded", member.id)

    # Idleness

    def retire(self, member: Member) -> None:
        """Let a member go that is not listed any more, as soon as whoever uses it or waits for it has finished."""
        member.is_retired, member.is_pinned, member.on_idle = True, False, self.note_idle
        self._retired.append(member)
        self.note_idle(member)

    async def _dismiss(self, member: Member) -> None:
        """Where it was used again meanwhile, somebody calls this once more."""
        if await self.unload(member) and not member.num_bytes and member in self._retired:
            self._retired.remove(member)
            self._freed.set()

    def note_idle(self, member: Member) -> None:
        self._freed.set()
        self._forget_timer(member)
        if member.is_retired:
            if not member.num_users and not member.num_waiting and member.loading is None:
                self._begin(self._dismiss(member))
            return
        seconds = member.entry.idle_seconds
        if seconds is None or member.is_pinned or not member.is_idle:
            return
        timer = asyncio.get_running_loop().call_later(seconds, self._end_idleness, member)
        self._timers[member] = timer

    def _end_idleness(self, member: Member) -> None:
        self._timers.pop(member, None)
        self._begin(self._unload_idle(member))

    async def _unload_idle(self, member: Member) -> None:
        """Unload a member whose time is up, unless it was used or pinned meanwhile: a use begins its time again."""
        async with self._turn:
            if member.is_idle and not member.is_pinned and member not in self._timers:
                await self._unload(member)

    def _begin(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)  # or it might be collected while it runs
        task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Future[object]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a model could not be unloaded", exc_info=task.exception())

    def _forget_timer(self, member: Member) -> None:
        timer = self._timers.pop(member, None)
        if timer is not None:
            timer.cancel()


def _enough(members: list[Member], num_bytes: int) -> list[Member] | None:
    chosen: list[Member] = []
    for member in sorted(members, key=lambda each: each.last_used):
        if num_bytes <= 0:
            break
        chosen.append(member)
        num_bytes -= member.num_bytes
    return chosen if num_bytes <= 0 else None


def _no_room(member: Member) -> Unavailable:
    reason = f"The model {member.id!r} found no room: others were in use all the time."
    return Unavailable(reason, code="no_room", retry_after_s=30)


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / (1 << 20):,.0f} MiB"
