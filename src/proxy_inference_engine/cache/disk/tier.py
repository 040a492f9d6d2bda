"""The disk tier of the prefix cache: takes what leaves memory, and brings it back before it would be computed again.

All calls come from the engine thread and none waits for the disk. What goes wrong there is a miss, never an error.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from proxy_inference_engine.cache.disk.drive import Drive, Outcome, Read, Scanned, Wanted, Written
from proxy_inference_engine.cache.disk.file import Header, Piece, file_bytes
from proxy_inference_engine.cache.disk.index import DiskFile, DiskIndex, Take
from proxy_inference_engine.cache.prefix import Path, PrefixCache
from proxy_inference_engine.runners.base import Packed, Packer, Runner, Segment, TokenIds

_log = logging.getLogger(__name__)

_FLUSH_SECONDS = 3.0
_TICK_SECONDS = 0.01  # between the dates of two texts; file systems tell less apart than clocks
_WAIT_SECONDS = 0.005  # when there is nothing else to do
_PATIENCE_SECONDS, _PATIENCE_BYTES = 1.0, 100_000_000  # a read that takes longer than so slow a disk would is given up


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """What may lie on disk, and the shortest text that is worth it: fewer tokens are computed as fast as read."""

    max_bytes: int
    min_tokens: int = 256


class DiskStats(NamedTuple):
    num_bytes: int = 0
    max_bytes: int = 0
    total_hits: int = 0  # texts brought back
    total_tokens: int = 0  # of texts brought back
    total_written_bytes: int = 0
    total_failures: int = 0  # files that could not be written, or were no good
    total_skipped: int = 0  # texts that were not written because too much was being written already


@dataclass(slots=True, eq=False)
class Loading:
    """A text on its way back into memory. Whoever waits for it waits until `is_over`."""

    tenant: str
    ids: TokenIds
    takes: list[Take]
    num_tokens: int
    has_ended: bool = False
    deadline: float = 0.0
    clock: Callable[[], float] = field(default=time.perf_counter, repr=False)

    @property
    def is_over(self) -> bool:
        return self.has_ended or self.clock() > self.deadline


class DiskTier:
    """Files are written when memory evicts a text, and at the end. Invariant: what is packed is being written."""

    def __init__(
        self,
        cache: PrefixCache,
        runner: Runner,
        drive: Drive,
        room: DiskRoom,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        assert runner.packer is not None
        self._cache = cache
        self._packer: Packer = runner.packer
        self._is_closed = False
        self._drive = drive
        self._can_splice = runner.can_splice
        self._token_bytes = runner.info.kv_bytes_per_token
        self._model = _digest(f"{runner.info.fingerprint} {self._packer.layout} {runner.can_splice}")
        self._min_tokens = room.min_tokens
        self._clock = clock
        self.index = DiskIndex(room.max_bytes, can_splice=runner.can_splice)
        self._stats = DiskStats(max_bytes=room.max_bytes)
        self._writing: dict[str, DiskFile] = {}
        self._packed: dict[str, list[Packed]] = {}  # by the name of the file
        self._loadings: dict[int, Loading] = {}
        self._num_tickets = 0
        cache.on_evict = self._keep_evicted

    @property
    def stats(self) -> DiskStats:
        return self._stats._replace(num_bytes=self.index.num_bytes)

    def poll(self, *, may_wait: bool = False) -> None:
        """Take in what the disk has done."""
        for outcome in self._drive.outcomes(_WAIT_SECONDS if may_wait and self._loadings else 0.0):
            try:
                self._take_in(outcome)
            except Exception:
                _log.exception("the disk cache could not take in what was done")
        self._remove_files()

    def load(self, tenant: str, ids: TokenIds) -> Loading:
        """Bring back what memory lacks of a text. Over at once where the disk has too little of it."""
        num_cached = self._cache.match(tenant, ids).num_tokens
        takes = self.index.find(_digest(tenant), ids, num_cached)
        num_tokens = takes[-1].end - num_cached if takes else 0
        loading = Loading(tenant, ids.copy(), takes, num_tokens, has_ended=True, clock=self._clock)
        num_bytes = sum(take.num_bytes for take in takes)
        is_there = all(take.file.name not in self._writing for take in takes)
        if num_tokens < self._min_tokens or num_bytes > self._cache.max_bytes or not is_there:
            return loading
        for other in self._loadings.values():
            if other.tenant == tenant and other.takes == takes:
                return other
        if not self._drive.can_read():
            return loading
        loading.has_ended = False
        loading.deadline = self._clock() + _PATIENCE_SECONDS + num_bytes / _PATIENCE_BYTES
        self._num_tickets += 1
        self._loadings[self._num_tickets] = loading
        wanted = [Wanted(take.file.name, take.file.header, take.first, take.stop) for take in takes]
        self._drive.read(self._num_tickets, wanted)
        return loading

    def close(self) -> None:
        """Write what memory holds, the most recent first, as far as a few seconds allow. Nothing else comes after.

        Harmless when it is closed.
        """
        if self._is_closed:
            return
        self._is_closed = True
        deadline = self._clock() + _FLUSH_SECONDS
        try:
            self._keep_all(deadline)
        except Exception:
            _log.exception("what memory held could not be given to the disk cache")
        self._drive.close(max(0.0, deadline - self._clock()))
        self._end_writes(0.0)
        for name in list(self._packed):  # the time was up before they were written
            self._release(self._packed.pop(name))

    def check(self) -> None:
        """Raise if the books are wrong."""
        self.index.check()
        assert self._packed.keys() == self._writing.keys(), "bytes that nobody writes"

    # Writing

    def _keep_all(self, deadline: float) -> None:
        """Write what memory holds, dated so that the files of a text that was used later are the younger ones."""
        room, dated = self.index.max_bytes, set[str]()
        for age, path in enumerate(self._cache.texts()):
            segments = self._lacking(path)
            while not self._drive.can_write(sum(segment.num_bytes for segment in segments)):
                if self._clock() > deadline:
                    return
                self._end_writes(_WAIT_SECONDS)
            room -= sum(segment.num_bytes for segment in segments)
            if room < 0:  # more would push out what was just written
                return
            if segments:
                self._write(path, segments)
            for take in self.index.find(_digest(path.tenant), path.ids, 0):
                if take.file.name not in dated:
                    dated.add(take.file.name)
                    self._drive.touch(take.file.name, time.time() - age * _TICK_SECONDS)

    def _end_writes(self, wait_s: float) -> None:
        """Take in writes that ended, when nothing is to come into memory any more."""
        for outcome in self._drive.outcomes(wait_s):
            if isinstance(outcome, Written):
                self._end_write(outcome)

    def _keep_evicted(self, path: Path) -> None:
        """Write a text that is leaving memory."""
        try:
            segments = self._lacking(path)
            if segments and self._drive.can_write(sum(segment.num_bytes for segment in segments)):
                self._write(path, segments)
            elif segments:
                self._count(total_skipped=1)
        except Exception:
            _log.exception("a text could not be given to the disk cache")

    def _lacking(self, path: Path) -> list[Segment]:
        """The last segments of a text, from where the disk does not have it; none if that is too little."""
        num_ids = len(path.ids)
        num_known = self.index.num_known(_digest(path.tenant), path.ids)
        start = num_known if num_known >= self._min_tokens else 0  # for less, another file is not worth opening
        if num_ids - start < self._min_tokens:
            return []
        end, first = num_ids, len(path.segments)
        while end > start and first > 0:
            first -= 1
            end -= path.segments[first].num_tokens
        return path.segments[first:]

    def _write(self, path: Path, segments: list[Segment]) -> None:
        """Begin to write the last segments of a text, if there is room for them."""
        data = [self._packer.pack(segment) for segment in segments]
        pieces = tuple(Piece(seg.num_tokens, packed.nbytes) for seg, packed in zip(segments, data, strict=True))
        start = len(path.ids) - sum(piece.num_tokens for piece in pieces)
        header = Header(self._model, _digest(path.tenant), path.ids, start, pieces)
        file = DiskFile(self._drive.new_name(), header, file_bytes(header))
        if not self.index.add(file):
            self._release(data)
            return
        self._remove_files()
        self._writing[file.name], self._packed[file.name] = file, data
        self._drive.write(file.name, header, data)

    def _release(self, data: list[Packed]) -> None:
        for packed in data:
            self._packer.release(packed)

    def _remove_files(self) -> None:
        for name in self.index.removed():
            self._drive.remove(name)

    # What the disk has done

    def _take_in(self, outcome: Outcome) -> None:
        match outcome:
            case Written():
                self._end_write(outcome)
            case Read():
                self._end_read(outcome)
            case Scanned():
                self._add_found(outcome)

    def _end_write(self, outcome: Written) -> None:
        file = self._writing.pop(outcome.name)
        self._release(self._packed.pop(outcome.name))
        if outcome.is_done:
            self._count(total_written_bytes=file.num_bytes)
        else:
            self._fail(file)

    def _end_read(self, outcome: Read) -> None:
        loading = self._loadings.pop(outcome.ticket)
        loading.has_ended = True
        try:
            is_whole = all(
                self._restore(loading, take, data) for take, data in zip(loading.takes, outcome.data, strict=False)
            )
            if is_whole and outcome.bad is None:
                self._count(total_hits=1, total_tokens=loading.num_tokens)
        except Exception:
            _log.exception("what the disk cache had could not be put into memory")
        for take in loading.takes:
            if take.file.name == outcome.bad:
                self._fail(take.file)

    def _restore(self, loading: Loading, take: Take, data: list[Packed]) -> bool:
        """Put pieces of a file back into memory; False if one does not fit or is no good."""
        for number, packed in enumerate(data, take.first):
            ids = loading.ids[: min(take.end, take.file.header.ends[number])]
            try:
                self._cache.insert(loading.tenant, ids, self._export(take, number, packed), self._token_bytes)
            except ValueError:
                self._fail(take.file)
                return False
            except LookupError:
                return False
            if self._cache.match(loading.tenant, ids).num_tokens < len(ids):
                return False
        return True

    def _export(self, take: Take, number: int, packed: Packed) -> Callable[[int], Segment]:
        """Gives a piece of a file as if it came out of a slot."""
        num_tokens, end = take.file.header.pieces[number].num_tokens, take.file.header.ends[number]
        first = end - num_tokens

        def export(start: int) -> Segment:
            if start < first:
                raise LookupError("what comes before it left memory meanwhile")
            segment = self._packer.unpack(num_tokens, packed)
            if take.end < end:
                segment, rest = segment.split(take.end - first)
                rest.free()
            if start > first:
                rest, segment = segment.split(start - first)
                rest.free()
            return segment

        return export

    def _add_found(self, outcome: Scanned) -> None:
        """Take in what earlier processes left, the most recent first: beginnings before what builds on them."""
        room, kept = self.index.max_bytes, []
        for stored in sorted(outcome.files, key=lambda stored: stored.used_at, reverse=True):
            room -= stored.num_bytes
            if room < 0:
                self._drive.remove(stored.name)
            elif stored.header.model != self._model:
                self.index.add_other(stored.name, stored.num_bytes)
            else:
                kept.append(stored)
        for stored in sorted(kept, key=lambda stored: stored.header.start):
            if not self.index.add(DiskFile(stored.name, stored.header, stored.num_bytes)):
                self._drive.remove(stored.name)
        for stored in reversed(kept):
            self.index.num_known(stored.header.tenant, stored.header.ids)  # which counts as a use

    def _fail(self, file: DiskFile) -> None:
        self._count(total_failures=1)
        self.index.drop(file)

    def _count(self, **more: int) -> None:
        changed = {name: getattr(self._stats, name) + number for name, number in more.items()}
        self._stats = self._stats._replace(**changed)


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
