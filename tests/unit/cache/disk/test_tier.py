"""The disk tier under a real engine on the fake model, over real files and threads, in one life and over several."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from proxy_inference_engine.cache.disk.drive import ThreadedDrive
from proxy_inference_engine.cache.disk.folder import Folder
from proxy_inference_engine.cache.disk.tier import DiskRoom, DiskTier
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.types import Prefilled, Request, Token
from tests.polling import HANG_S, wait_until
from tests.requests import make_request

TOKEN_BYTES = FakeRunner().info.kv_bytes_per_token
LANES = (Lane(4, 4096),)
MIN_TOKENS = 256


def text(seed: int, length: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(97, 123, length).tolist())


class Life:
    """One process: an engine with a disk."""

    def __init__(self, folder: Path, *, memory: int, disk: int = 1 << 30, can_splice: bool = True) -> None:
        self.runner = FakeRunner(lanes=LANES, can_splice=can_splice, end_bias=-40.0)
        self.engine = StepEngine(self.runner, max_cache_bytes=memory * TOKEN_BYTES)
        drive = ThreadedDrive(Folder(folder))
        self.tier = DiskTier(self.engine.cache, self.runner, drive, DiskRoom(disk, MIN_TOKENS))
        self.engine.scheduler.disk = self.tier
        wait_until(drive._outcomes.qsize)
        self.engine.scheduler.rest()  # what lies there is known now

    def ask(self, *prompts: tuple[int, ...], tenant: str = "anna") -> list[tuple[int, list[int]]]:
        """Cached tokens and answer of each, all asked at once."""
        requests = [make_request(prompt, id=str(i), tenant=tenant) for i, prompt in enumerate(prompts)]
        return self.answer(requests)

    def answer(self, requests: list[Request]) -> list[tuple[int, list[int]]]:
        cached: dict[str, int] = {}
        answers: dict[str, list[int]] = {request.id: [] for request in requests}
        for request in requests:
            self.engine.add(request)
        deadline = time.monotonic() + HANG_S
        while self.engine.has_work:
            assert time.monotonic() < deadline, "no progress"
            for request_id, _, output in self.engine.step():
                if isinstance(output, Prefilled):
                    cached[request_id] = output.num_cached_tokens
                elif isinstance(output, Token):
                    answers[request_id].append(output.id)
            self.engine.check()
            self.tier.check()
        return [(cached[request.id], answers[request.id]) for request in requests]

    def settle(self) -> None:
        """Until everything that was ordered is written."""

        def is_written() -> bool:
            self.engine.scheduler.rest()
            return not self.tier._writing

        wait_until(is_written)


@contextmanager
def life(
    folder: Path, *, memory: int = 10_000, disk: int = 1 << 30, can_splice: bool = True, is_killed: bool = False
) -> Iterator[Life]:
    lived = Life(folder, memory=memory, disk=disk, can_splice=can_splice)
    yield lived
    if is_killed:
        lived.tier._drive.close(0)  # the system gives the folder free
    else:
        lived.tier.close()


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.kv"))


LONG = text(1, 1000)


@pytest.mark.parametrize("can_splice", [True, False])
def test_the_same_prompt_after_a_restart_computes_one_token(tmp_path: Path, can_splice: bool) -> None:
    with life(tmp_path, can_splice=can_splice) as first:
        [(num_cached, answer)] = first.ask(LONG)
        assert num_cached == 0
    with life(tmp_path, can_splice=can_splice) as second:
        assert second.ask(LONG) == [(999, answer)]
        stats = second.tier.stats
        assert (stats.total_hits, stats.total_failures) == (1, 0) and stats.total_tokens >= 999
        assert second.ask(LONG) == [(999, answer)]
        assert second.tier.stats.total_hits == 1, "the second time it is in memory"


def test_what_leaves_memory_comes_back(tmp_path: Path) -> None:
    with life(tmp_path, memory=1500) as lived:
        [(_, answer)] = lived.ask(LONG)
        lived.ask(text(2, 1200))
        lived.settle()
        assert len(files(tmp_path)) == 1
        assert lived.ask(LONG) == [(999, answer)]
        lived.settle()
        assert lived.tier.stats.num_bytes == sum(path.stat().st_size for path in files(tmp_path))


def test_a_conversation_is_a_chain_of_files_and_short_turns_wait_for_more(tmp_path: Path) -> None:
    turns = [LONG, LONG + text(3, 100), LONG + text(3, 300)]
    sizes = []
    for turn in turns:
        with life(tmp_path) as lived:
            lived.ask(turn)
        sizes.append(len(files(tmp_path)))
    assert sizes == [1, 1, 2]
    with life(tmp_path) as lived:
        [(num_cached, _)] = lived.ask(turns[-1] + text(4, 50))
        assert num_cached == len(turns[-1])


def test_one_beginning_is_written_once(tmp_path: Path) -> None:
    with life(tmp_path) as lived:
        answers = lived.ask(LONG + text(5, 400), LONG + text(6, 400))
    sizes = sorted(path.stat().st_size for path in files(tmp_path))
    assert len(sizes) == 2 and sizes[0] < sizes[1] / 2
    with life(tmp_path) as lived:
        again = lived.ask(LONG + text(5, 400), LONG + text(6, 400))
        assert [cached for cached, _ in again] == [1399, 1399]
        assert [answer for _, answer in again] == [answer for _, answer in answers]


def test_those_who_ask_at_once_read_once(tmp_path: Path) -> None:
    with life(tmp_path) as lived:
        [(_, answer)] = lived.ask(LONG)
    with life(tmp_path) as lived:
        assert lived.ask(LONG, LONG, LONG) == [(999, answer)] * 3
        assert lived.tier.stats.total_hits == 1


@pytest.mark.parametrize(("length", "num_files"), [(MIN_TOKENS - 20, 0), (MIN_TOKENS, 1)])
def test_short_texts_are_not_worth_a_file(tmp_path: Path, length: int, num_files: int) -> None:
    with life(tmp_path) as lived:
        lived.ask(text(7, length))
    assert len(files(tmp_path)) == num_files


def test_tenants_do_not_share_and_are_not_named(tmp_path: Path) -> None:
    with life(tmp_path) as lived:
        lived.ask(LONG, tenant="anna-of-the-third-floor")
    with life(tmp_path) as lived:
        assert lived.ask(LONG, tenant="ben")[0][0] == 0
        assert lived.ask(LONG, tenant="anna-of-the-third-floor")[0][0] == 999
    for path in files(tmp_path):
        assert b"anna" not in path.read_bytes() and "anna" not in path.name


def test_another_model_finds_nothing_and_removes_nothing_it_has_room_beside(tmp_path: Path) -> None:
    with life(tmp_path) as lived:
        lived.ask(LONG)
    [path] = files(tmp_path)
    with life(tmp_path, can_splice=False) as other:
        assert other.ask(LONG)[0][0] == 0
        assert other.tier.stats.num_bytes == path.stat().st_size
    assert path in files(tmp_path) and len(files(tmp_path)) > 1
    with life(tmp_path, disk=path.stat().st_size + 10, can_splice=False) as other:
        assert other.tier.stats.num_bytes <= path.stat().st_size + 10
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "swap", "remove"])
def test_damage_is_a_miss_and_the_file_is_written_anew(tmp_path: Path, damage: str) -> None:
    with life(tmp_path) as lived:
        [(_, answer)] = lived.ask(LONG)
        lived.ask(text(8, 900))
    with life(tmp_path) as lived:
        for path, other in zip(files(tmp_path), reversed(files(tmp_path)), strict=True):
            content = bytearray(path.read_bytes())
            content[-7] ^= 4
            match damage:
                case "flip":
                    path.write_bytes(content)
                case "cut":
                    path.write_bytes(content[:-1])
                case "empty":
                    path.write_bytes(b"")
                case "swap":
                    path.write_bytes(other.read_bytes())
                case "remove":
                    path.unlink()
        [(num_cached, again)] = lived.ask(LONG)
        # The second file, once both have the same content, is what it should be.
        assert (num_cached, again) in [(0, answer), (999, answer)] if damage == "swap" else (num_cached == 0)
        assert again == answer
        assert lived.tier.stats.total_failures == (0 if num_cached else 1)
    with life(tmp_path) as lived:
        assert lived.ask(LONG) == [(999, answer)]


def test_the_budget_on_disk_is_kept_and_the_most_recent_stays(tmp_path: Path) -> None:
    with life(tmp_path) as lived:
        lived.ask(LONG)
    size = files(tmp_path)[0].stat().st_size
    with life(tmp_path, memory=1100, disk=int(2.5 * size)) as lived:
        for seed in range(20, 25):
            lived.ask(text(seed, 1000))
            lived.settle()
            assert sum(path.stat().st_size for path in files(tmp_path)) <= 2.5 * size
    with life(tmp_path, disk=int(2.5 * size)) as lived:
        found = [lived.ask(text(seed, 1000))[0][0] > 0 for seed in (20, 21, 22, 24)]
        assert found == [False, False, False, True]


def test_the_order_of_use_survives_a_restart_also_of_what_was_only_used_in_memory(tmp_path: Path) -> None:
    texts = [text(seed, 1000) for seed in (30, 31, 32)]
    with life(tmp_path) as lived:
        for each in texts:
            lived.ask(each)
    size = files(tmp_path)[0].stat().st_size
    with life(tmp_path) as lived:
        for each in (texts[2], texts[0], texts[1], texts[0]):
            assert lived.ask(each)[0][0] == 999
    with life(tmp_path, disk=int(2.5 * size)) as lived:
        assert [lived.ask(each)[0][0] for each in texts] == [999, 999, 0]


def test_a_killed_process_leaves_what_it_had_written(tmp_path: Path) -> None:
    with life(tmp_path, memory=1500, is_killed=True) as lived:
        [(_, answer)] = lived.ask(LONG)
        lived.ask(text(2, 1200))
        lived.settle()
    (tmp_path / "half.part").write_bytes(b"PIE")
    with life(tmp_path) as lived:
        assert lived.ask(LONG) == [(999, answer)]
        assert lived.ask(text(2, 1200))[0][0] == 0
        assert not (tmp_path / "half.part").exists()


def test_a_text_larger_than_memory_is_not_read(tmp_path: Path) -> None:
    with life(tmp_path) as lived:
        lived.ask(LONG)
    with life(tmp_path, memory=500) as lived:
        assert lived.ask(LONG)[0][0] == 0
        assert lived.tier.stats.total_hits == 0


def test_others_go_on_while_one_waits_for_the_disk(tmp_path: Path) -> None:
    with life(tmp_path) as lived:
        lived.ask(LONG)
    with life(tmp_path) as lived:
        lived.engine.add(make_request(LONG, id="waits", tenant="anna"))
        lived.engine.add(make_request("short", id="goes", tenant="anna"))
        heard = {delivery.request_id for delivery in lived.engine.step()}
        waiting = [sequence.request.id for sequence in lived.engine.scheduler.waiting]
        assert heard == {"goes"} and waiting == ["waits"]
        while lived.engine.has_work:
            lived.engine.step()
        assert lived.engine.stats.total_prompt_tokens_cached == 999
