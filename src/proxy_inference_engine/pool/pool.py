"""The models that are served, loaded or not: their names, and leases for those who use them. Event loop only."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.stats import Stats, total
from proxy_inference_engine.errors import InvalidRequest, NotFound, shorten
from proxy_inference_engine.models.watcher import Watcher
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.pool.loads import Loads
from proxy_inference_engine.pool.member import Member, ModelLoader
from proxy_inference_engine.pool.names import ModelNames
from proxy_inference_engine.served.model import ServedModel


class Renewal(NamedTuple):
    """What became of the list of models."""

    added: list[str]
    removed: list[str]
    changed: list[str]  # to be loaded anew


class Resident:
    """A `ModelLoader` of what was loaded before: it never has anything to do."""

    async def need(self, entry: PoolEntry) -> int:
        raise AssertionError(entry.id)

    async def load(self, entry: PoolEntry, watcher: Watcher) -> ServedModel:
        raise AssertionError(entry.id)

    async def unload(self, model: ServedModel) -> None: ...


class Lease:
    """One use of a loaded model, which stays loaded until it is released."""

    def __init__(self, member: Member, adapter: str | None = None) -> None:
        assert member.model is not None
        self.model = member.model if adapter is None else member.model.adapted(adapter)
        self._member: Member | None = member
        self._adapter = adapter
        member.num_users += 1

    def hand_on(self) -> "Lease":
        """The same use in other hands, for what may go on when the holder of this one is gone. It counts once."""
        assert self._member is not None
        taken = Lease(self._member, self._adapter)
        self.release()
        return taken

    def release(self) -> None:
        """Harmless when it was released already."""
        member, self._member = self._member, None
        if member is not None:
            member.num_users -= 1
            member.last_used, member.used_at = member.clock(), int(time.time())
            if not member.num_users and member.on_idle is not None:
                member.on_idle(member)


class ModelPool:
    """`max_bytes` None: memory is not counted. Raises StartupError for an alias of a model that is not listed."""

    def __init__(
        self,
        entries: Iterable[PoolEntry],
        loader: ModelLoader,
        *,
        max_bytes: int | None = None,
        aliases: Mapping[str, str] | None = None,
        widen: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`widen`: what a pool that counts no memory may have from the moment on when it gets another model."""
        self.can_grow = not isinstance(loader, Resident)
        self._widen = widen
        self._clock = clock
        self._loader = loader
        self.members = [Member(entry, clock) for entry in entries]
        self._loads = Loads(self.members, loader, max_bytes, clock)
        self.directory = ModelNames(self.members, aliases or {})
        # One that is alone and never goes has nobody to make room for.
        if len(self.members) > 1 or any(member.entry.idle_seconds is not None for member in self.members):
            self._listen()

    def _listen(self) -> None:
        for member in self.members:
            member.on_idle = self._loads.note_idle

    @classmethod
    def of(cls, models: Sequence[ServedModel], aliases: Mapping[str, str] | None = None) -> "ModelPool":
        """Models that are loaded already, for good."""
        pool = cls([PoolEntry(model.id, Config(), is_pinned=True) for model in models], Resident(), aliases=aliases)
        for member, model in zip(pool.members, models, strict=True):
            member.adopt(model, 0)
        return pool

    def add(self, entry: PoolEntry) -> Member:
        """Take in a model that the operator did not list, until the end of the server; one that is there stays."""
        assert self.can_grow
        known = self.directory.exact.get(entry.id)
        if known is not None:
            return known
        if self._loads.max_bytes is None and self._widen is not None:
            self._loads.max_bytes = self._widen()
        member = Member(entry, self._clock)
        self._loads.add(member)
        self.directory.exact[entry.id] = member
        self._listen()
        return member

    # Names

    @property
    def names(self) -> Mapping[str, Member]:
        """The names that are listed: of each model its own name first, then exact aliases."""
        return self.directory.exact

    def get(self, name: str) -> Member | None:
        return self.directory.exact.get(name) or self.directory.get(name)

    def find(self, name: str | None) -> Member:
        """The model that a request names; it need not, where there is one. A name never becomes a path.

        Raises NotFound, or InvalidRequest where none is named.
        """
        if not name and len(self.members) > 1:
            raise InvalidRequest(
                "Missing required parameter: 'model': several are served.", param="model", code="missing_parameter"
            )
        member = self.members[0] if not name else self.get(name)
        if member is None:
            raise NotFound(f"The model {shorten(name or '')!r} does not exist.", param="model", code="model_not_found")
        return member

    def id_of(self, name: str | None) -> str | None:
        """The model's own name, whatever a client calls it; a name that nothing has stays as it is."""
        member = None if name is None else self.get(name)
        if member is None:
            return name
        adapter = self.adapter_of(name)
        return member.id if adapter is None else f"{member.id}:{adapter}"

    def adapter_of(self, name: str | None) -> str | None:
        """The adapter that a name means beside its model."""
        return self.directory.adapter_of(name) if self.directory.adapters else None

    # Use

    def lease(self, member: Member, adapter: str | None = None) -> Lease | None:
        """A use of a model that is loaded; None: it has to be waited for."""
        is_usable = member.state == "ready" and not member.is_leaving
        return Lease(member, adapter) if is_usable else None

    async def obtain(self, member: Member, adapter: str | None = None) -> Lease:
        """A use of a model, loaded first where it is not. Raises PieError that says why that cannot be."""
        member.num_waiting += 1
        try:
            while (lease := self.lease(member, adapter)) is None:
                await asyncio.shield(self._loads.loading(member))
            return lease
        finally:
            member.num_waiting -= 1
            if member.is_retired and not member.num_waiting:
                self._loads.note_idle(member)

    def load(self, member: Member) -> None:
        """Begin to bring it into memory, where it may stay until its room is needed. What fails is in `error`."""
        if member.state != "ready":
            self._loads.loading(member)

    async def unload(self, member: Member) -> bool:
        """False: it is in use, and stays."""
        return await self._loads.unload(member)

    async def need(self, member: Member) -> int:
        """The bytes kept for it, or that a load will ask for; 0: nobody counts. Raises PieError."""
        return member.num_bytes or await self._loader.need(member.entry)

    def pin(self, member: Member, is_pinned: bool = True) -> None:
        member.is_pinned = is_pinned
        self._loads.note_idle(member)

    def preload(self) -> None:
        """Begin to load what the operator wants loaded. A failure is logged; whoever asks for the model hears it."""
        for member in self.members:
            if member.entry.is_preloaded:
                self.load(member)

    def check_names(self, entries: Sequence[PoolEntry], aliases: Mapping[str, str]) -> None:
        """Raises StartupError where such a list could not be taken."""
        ModelNames([Member(entry, self._clock) for entry in entries], aliases)

    def renew(self, entries: Sequence[PoolEntry], aliases: Mapping[str, str], max_bytes: int | None) -> Renewal:
        """Another list of models, from now on. Who is loaded and stays as it was is not touched; who goes, or has other
        settings, is unloaded when its last request is over. Raises StartupError: then nothing has changed.
        """
        before = {member.id: member for member in self.members}
        members = [self._kept(before.get(entry.id), entry) for entry in entries]
        self.directory = ModelNames(members, aliases)
        for member, entry in zip(members, entries, strict=True):
            if member.renew(entry):
                self._loads.note_idle(member)
        gone = [member for member in self.members if member not in members]
        self.members[:] = members
        self._loads.max_bytes = max_bytes
        self._listen()
        for member in gone:
            self._loads.retire(member)
        self.preload()
        names = [entry.id for entry in entries]
        return Renewal(
            added=[name for name in names if name not in before],
            removed=[name for name in before if name not in names],
            changed=[member.id for member in gone if member.id in names],
        )

    def _kept(self, known: Member | None, entry: PoolEntry) -> Member:
        return known if known is not None and known.entry.loads_like(entry) else Member(entry, self._clock)

    @property
    def max_bytes(self) -> int | None:
        return self._loads.max_bytes

    @property
    def kept_bytes(self) -> int:
        return self._loads.kept_bytes

    @property
    def used_bytes(self) -> int:
        return self._loads.used_bytes

    def loaded(self) -> list[ServedModel]:
        return [member.model for member in self._loads.everyone if member.model is not None]

    # What they say of themselves

    @property
    def is_ready(self) -> bool:
        """What is loaded makes progress. What is not is no fault."""
        return all(model.answerer.is_ready for model in self.loaded())

    def stats(self) -> dict[str, Stats]:
        """The stats of each model, with what it had counted when it was last unloaded."""
        found = dict(self._loads.gone)
        for member in self._loads.everyone:
            found.setdefault(member.id, Stats())
            if member.model is not None:
                found[member.id] = total((found[member.id], member.model.answerer.stats()))
        return found
