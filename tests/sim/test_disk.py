"""Seeded schedules over a disk that cannot be trusted: every answer is what it is without one, after restarts too.

And proof that a disk tier which believes its files would be noticed.
"""

from pathlib import Path

import pytest

from proxy_inference_engine.cache.disk import file as disk_file
from proxy_inference_engine.cache.disk.index import DiskIndex
from proxy_inference_engine.cache.disk.tier import DiskStats
from tests.sim.disk import DiskSimulation

_NUM_SEEDS = 120
_BATCH, _LARGE_BATCH = 20, 200


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")  # injected faults are logged


def _run_twice(seed: int, folder: Path) -> list[DiskSimulation]:
    """The same traffic before and after a restart."""
    simulations = []
    for _ in range(2):
        simulation = DiskSimulation(seed, folder / str(seed))
        simulation.run()
        simulation.stop()
        simulations.append(simulation)
    return simulations


@pytest.mark.parametrize("first", range(0, _NUM_SEEDS, _BATCH))
def test_seeds(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + _BATCH):
        try:
            _run_twice(seed, tmp_path)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1_000, 3_000, _LARGE_BATCH))
def test_many_seeds(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + _LARGE_BATCH):
        _run_twice(seed, tmp_path)


def test_schedules_reach_every_corner(tmp_path: Path) -> None:
    """Hits in one life and over a restart, failures, damage, and texts that were not written."""
    stats: list[DiskStats] = []
    hits_after_restart = damaged = 0
    for seed in range(60):
        first, second = _run_twice(seed, tmp_path)
        stats += [first.tier.stats, second.tier.stats]
        hits_after_restart += second.tier.stats.total_hits
        damaged += first.drive.num_damaged + second.drive.num_damaged
    assert sum(each.total_hits for each in stats) > hits_after_restart > 100
    assert sum(each.total_failures for each in stats) > 100 and damaged > 20
    assert sum(each.total_skipped for each in stats) > 20
    assert all(each.num_bytes <= each.max_bytes for each in stats)


def _is_caught(folder: Path, num_seeds: int = 60) -> bool:
    for seed in range(num_seeds):
        try:
            _run_twice(seed, folder)
        except Exception:
            return True
    return False


def test_catches_damage_that_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_file, "_digest", lambda data: "the same")
    assert _is_caught(tmp_path)


def test_catches_a_file_of_another_tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_file.Header, "is_same", lambda self, other: True)
    assert _is_caught(tmp_path)


def test_catches_a_budget_that_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiskIndex, "_make_room", lambda self, num_bytes: True)
    assert _is_caught(tmp_path)
