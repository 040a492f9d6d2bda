"""A disk under the virtual clock that is slow, fails, tears files and loses them; and the simulator with such a one."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from proxy_inference_engine.cache.disk.drive import Outcome, Read, Scanned, Wanted, Written
from proxy_inference_engine.cache.disk.file import Header, Stopped, write_file
from proxy_inference_engine.cache.disk.folder import Folder
from proxy_inference_engine.cache.disk.tier import DiskRoom, DiskTier
from proxy_inference_engine.runners.base import Packed
from proxy_inference_engine.runners.fake import FakePacker
from tests.clock import Clock
from tests.sim.simulation import Simulation

TOKEN_BYTES = 64
_MAX_PENDING = 3
_KINDS_OF_DAMAGE = 4


class SimulatedDrive:
    """Implements `Drive` without a thread: at each look some of what was ordered is done, on real files."""

    def __init__(self, path: Path, rng: random.Random, clock: Clock, fault_rate: float) -> None:
        self._path = path
        self._folder = Folder(path)
        self._random = rng
        self._clock = clock
        self._fault_rate = fault_rate
        self._writes: list[tuple[str, Header, list[Packed]] | str] = []
        self._reads: list[tuple[int, list[Wanted]]] = []
        self._has_scanned = False
        self.num_damaged = 0

    def new_name(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def can_write(self, num_bytes: int) -> bool:
        return len(self._writes) < _MAX_PENDING

    def write(self, name: str, header: Header, data: Sequence[Packed]) -> None:
        self._writes.append((name, header, list(data)))

    def can_read(self) -> bool:
        return len(self._reads) < _MAX_PENDING

    def read(self, ticket: int, wanted: Sequence[Wanted]) -> None:
        self._reads.append((ticket, list(wanted)))

    def touch(self, name: str, used_at: float) -> None:
        """The order of use is no business of a simulated disk."""

    def remove(self, name: str) -> None:
        self._writes.append(name)

    def outcomes(self, wait_s: float) -> list[Outcome]:
        self._clock.sleep(wait_s)
        found: list[Outcome] = []
        if not self._has_scanned and self._random.random() < 0.3:
            found.append(self._scan())
        while self._writes and self._random.random() < 0.5:
            found += self._do(self._writes.pop(0))
        if self._reads and self._random.random() < (0.5 if self._random.random() < 0.9 else 0.0):
            found.append(self._read(*self._reads.pop(self._random.randrange(len(self._reads)))))
        return found

    def close(self, seconds: float) -> None:
        """Now and then the time is up before everything is written."""
        while self._writes and self._random.random() < 0.95:
            self._do(self._writes.pop(0))
        self.abandon()

    def abandon(self) -> None:
        """The process was killed."""
        if self._random.random() < 0.5:
            (self._path / "half.part").write_bytes(b"PIE")
        self._folder.close()

    def _scan(self) -> Scanned:
        self._has_scanned = True
        return Scanned(list(self._folder.scan()))

    def _do(self, order: tuple[str, Header, list[Packed]] | str) -> list[Outcome]:
        if isinstance(order, str):
            self._folder.remove(order)
            return []
        name, header, data = order
        is_faulty = self._is_faulty()
        try:
            self._folder.write(name, header, data, lambda: not is_faulty)
        except Stopped:
            return [Written(name, is_done=False)]
        return [Written(name, is_done=True)]

    def _read(self, ticket: int, wanted: list[Wanted]) -> Read:
        data: list[list[Packed]] = []
        for name, header, first, stop in wanted:
            if self._is_faulty():
                self._damage(name, header)
            try:
                data.append(self._folder.read(name, header, first, stop))
                self._folder.touch(name)
            except (OSError, ValueError):
                return Read(ticket, data, name)
        return Read(ticket, data, None)

    def _is_faulty(self) -> bool:
        return self._random.random() < self._fault_rate

    def _damage(self, name: str, header: Header) -> None:
        """Scramble its end, break it off, lose it, or put a sound file of another tenant in its place."""
        self.num_damaged += 1
        path = self._path / f"{name}.kv"
        content = path.read_bytes() if path.exists() else b""
        path.unlink(missing_ok=True)
        noise = self._random.randbytes(len(content))
        match self._random.randrange(_KINDS_OF_DAMAGE):
            case 0:
                path.write_bytes(content[: -header.num_bytes] + noise[-header.num_bytes :])
            case 1 if content:
                path.write_bytes(content[: self._random.randrange(len(content))])
            case 2 if content:
                pieces = [np.frombuffer(noise[: piece.num_bytes], np.uint8) for piece in header.pieces]
                write_file(path, replace(header, tenant="nobody who asks"), pieces, lambda: True)


class DiskSimulation(Simulation):
    """Traffic that comes back to the same few texts, over a memory so small that they leave it, with a disk behind."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed)
        self.disk_random = random.Random(f"disk {seed}")
        fault_rate = self.disk_random.choice([0.0, 0.1, 0.3])
        self.drive = SimulatedDrive(folder, self.disk_random, self.clock, fault_rate)
        cache = self.engine.cache
        cache.max_bytes = TOKEN_BYTES * self.context * self.disk_random.choice([1, 1, 3])
        room = DiskRoom(self.disk_random.choice([5_000, 20_000, 10_000_000]), self.disk_random.choice([1, 4, 16]))
        self.texts = [self._ids(self.context // 2) for _ in range(5)]
        self.tier = DiskTier(cache, self.runner, self.drive, room, self.clock)
        self.engine.scheduler.disk = self.tier

    def _prompt(self) -> list[int]:
        text = self.disk_random.choice(self.texts)
        return text[: self.disk_random.choice([len(text), len(text), 9])] + self._ids(self.random.randint(1, 3))

    def _step(self) -> None:
        super()._step()
        self.tier.check()

    def stop(self) -> None:
        """As a server does, or killed. At a proper end all that was packed is given back."""
        if self.disk_random.random() < 0.8:
            self.tier.close()
            assert isinstance(self.runner.packer, FakePacker) and self.runner.packer.num_packed == 0
        else:
            self.drive.abandon()
