"""The contract of `base.Runner` on every tiny architecture: a slot's logits are those of its tokens, however it came
to hold them. Compared with passes of the bare model over whole texts.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import UNREAD_ID, Lane, Row, Segment, Unread, Want
from proxy_inference_engine.runners.mlx.model import MlxModel
from proxy_inference_engine.runners.mlx.runner import MlxRunner, Settings
from proxy_inference_engine.types import Sampling
from tests.tiny.runners import SNAPSHOTS, WRITERS, load_tiny, logits_of

CLOSE = 1e-4  # kernels differ in the order of their sums; a token that is not seen moves logits by more than 0.1
LANES = (Lane(4, 80), Lane(1, 200), Lane(1, 200))
NUM_SLOTS = 6
CAPACITY = [80, 80, 80, 80, 200, 200]


class Mirror:
    """A runner, and the tokens that each of its slots should hold."""

    def __init__(self, loaded: MlxModel, *, defers: bool, seed: int = 0) -> None:
        self.loaded = loaded
        self.runner = MlxRunner(loaded, Settings(LANES, defers=defers))
        self.ids: list[list[int]] = [[] for _ in range(NUM_SLOTS)]
        self.random = np.random.default_rng(seed)

    def forward(self, counts: dict[int, int], *, num_logits: int = 1) -> None:
        """So many random tokens more to each slot; checks the logits."""
        rows = []
        for slot, count in sorted(counts.items()):
            new = self.random.integers(10, 500, count).astype(np.int32)
            rows.append(Row(slot, len(self.ids[slot]), new, min(num_logits, count)))
            self.ids[slot] += new.tolist()
        found = self.runner.forward(rows)
        assert len(found) == len(rows)
        for row, logits in zip(rows, found, strict=True):
            assert self.distance(row.slot, np.asarray(logits), row.num_logits) < CLOSE, row

    def distance(self, slot: int, logits: NDArray[np.float32], num_logits: int) -> float:
        expected = logits_of(self.loaded, self.ids[slot])[len(self.ids[slot]) - num_logits :]
        assert logits.shape == expected.shape and logits.dtype == np.float32
        return float(np.abs(logits - expected).max(initial=0.0))

    def room(self, slot: int) -> int:
        return CAPACITY[slot] - len(self.ids[slot])

    def copy(self, source: int, target: int) -> None:
        """By a segment; in pieces where the runner can, and not all of it."""
        num_tokens = len(self.ids[source])
        segments: list[Segment] = []
        if self.runner.can_splice and num_tokens > 3:
            cut, inner = num_tokens // 3, num_tokens // 3 // 2
            segments = [self.runner.export(source, 0, cut), self.runner.export(source, cut, num_tokens)]
            if inner:
                segments[:1] = segments[0].split(inner)
            num_tokens -= 1
        else:
            segments = [self.runner.export(source, 0, num_tokens)]
        assert all(segment.num_bytes > 0 for segment in segments)
        num_tokens = min(num_tokens, CAPACITY[target]) if self.runner.can_splice else num_tokens
        self.runner.restore(target, segments, num_tokens)
        self.ids[target] = self.ids[source][:num_tokens]
        for segment in segments:
            segment.free()

    def release(self, slot: int) -> None:
        self.runner.release(slot)
        self.ids[slot] = []


@pytest.fixture(scope="module", params=WRITERS)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MlxModel:
    return load_tiny(request.param, tmp_path_factory.getbasetemp())


@pytest.fixture
def mirror(loaded: MlxModel) -> Iterator[Mirror]:
    mirror = Mirror(loaded, defers=False)
    yield mirror
    mirror.runner.close()


def test_what_a_runner_says_of_itself(mirror: Mirror, loaded: MlxModel) -> None:
    runner = mirror.runner
    assert runner.can_splice == (loaded.info.name not in SNAPSHOTS)
    assert runner.lanes == LANES and runner.image_encoder is None
    assert runner.max_logits >= NUM_SLOTS and runner.max_batch_tokens > 0
    logits = np.asarray(runner.forward([Row(0, 0, np.array([5], np.int32), 1)])[0])
    assert logits.shape == (1, runner.tokenizer.num_tokens)


@pytest.mark.parametrize("counts", [[80], [31, 1, 32, 1], [33, 1, 1, 40]])
def test_chunks_give_what_the_whole_gives(mirror: Mirror, counts: list[int]) -> None:
    for count in counts:
        mirror.forward({2: count})


def test_rows_of_all_kinds_go_together(mirror: Mirror) -> None:
    """Short and long ones, over all lanes, not beginning with the first slot."""
    mirror.forward({1: 3, 2: 40, 4: 50, 5: 2})
    mirror.forward({0: 20, 1: 1, 2: 1, 4: 1, 5: 1})
    mirror.forward({1: 1, 3: 1})
    mirror.forward({0: 1, 1: 5, 2: 2, 3: 33, 4: 100, 5: 1})


@pytest.mark.parametrize("num_logits", [0, 2, 50])
def test_as_many_logits_as_wanted(mirror: Mirror, num_logits: int) -> None:
    mirror.forward({0: 50, 3: 7}, num_logits=num_logits)
    mirror.forward({0: 1, 3: 4}, num_logits=num_logits)
    mirror.forward({0: 1, 3: 1})


def test_a_restored_slot_goes_on_like_the_one_it_was_copied_from(mirror: Mirror) -> None:
    mirror.forward({0: 50, 1: 9})
    mirror.copy(0, 4)  # another lane
    mirror.copy(0, 3)
    mirror.forward({0: 1, 1: 1, 3: 2, 4: 1})
    mirror.forward({0: 1, 1: 1, 3: 1, 4: 60})
    mirror.copy(1, 0)  # over what was there
    mirror.forward({0: 1, 1: 1, 4: 1})


def test_a_segment_outlives_its_slot(mirror: Mirror) -> None:
    mirror.forward({0: 40})
    kept = mirror.ids[0]
    segment = mirror.runner.export(0, 0, 40)
    mirror.release(0)
    mirror.forward({0: 70, 1: 3})
    for slot in (2, 4):
        mirror.runner.restore(slot, [segment], 40)
        mirror.ids[slot] = list(kept)
    mirror.forward({0: 1, 1: 1, 2: 1, 4: 1})
    mirror.forward({2: 5, 4: 5})


def test_forgetting(mirror: Mirror) -> None:
    """Anything, or everything where what is remembered can't be cut."""
    mirror.forward({0: 50, 1: 20})
    for slot, end in ((0, 41), (1, 1)) if mirror.runner.can_splice else ((0, 0), (1, 0)):
        mirror.runner.truncate(slot, end)
        del mirror.ids[slot][end:]
    mirror.forward({0: 2, 1: 1})
    mirror.forward({0: 1, 1: 40})


def test_releasing_is_harmless(mirror: Mirror) -> None:
    mirror.runner.release(3)
    mirror.forward({0: 5})
    mirror.release(0)
    mirror.runner.release(0)
    mirror.forward({0: 9, 4: 3})


@pytest.mark.parametrize("defers", [False, True], ids=["waits", "defers"])
def test_any_order_of_calls(loaded: MlxModel, defers: bool) -> None:
    mirror = Mirror(loaded, defers=defers, seed=int(defers))
    random = mirror.random
    for _ in range(16):
        wanted = {slot: int(random.choice([0, 0, 1, 1, 1, 2, 6, 30, 45])) for slot in range(NUM_SLOTS)}
        counts = {slot: min(count, mirror.room(slot)) for slot, count in wanted.items()}
        counts = {slot: count for slot, count in counts.items() if count > 0}
        if counts:
            mirror.forward(counts, num_logits=int(random.choice([1, 1, 1, 3])))
        slot = int(random.integers(NUM_SLOTS))
        match random.choice(["none", "release", "copy", "truncate"]):
            case "release":
                mirror.release(slot)
            case "copy" if mirror.ids[slot]:
                targets = [other for other in range(NUM_SLOTS) if CAPACITY[other] >= len(mirror.ids[slot])]
                mirror.copy(slot, int(random.choice([other for other in targets if other != slot])))
            case "truncate" if mirror.runner.can_splice and mirror.ids[slot]:
                del mirror.ids[slot][int(random.integers(1, len(mirror.ids[slot]) + 1)) :]
                mirror.runner.truncate(slot, len(mirror.ids[slot]))
    mirror.runner.close()


def test_a_token_that_only_the_device_knows(loaded: MlxModel) -> None:
    """Rows that end with it give what they give when it is told: alone, among known ones, and after others."""
    mirror = Mirror(loaded, defers=True)
    runner = mirror.runner
    assert runner.chooser is not None
    prompts = [[20 + slot, 30, 40 + slot, 50][: 4 - slot % 2] for slot in range(NUM_SLOTS)]
    rows = [Row(slot, 0, np.array(ids, np.int32), 1) for slot, ids in enumerate(prompts)]
    wants = [Want(logits, Sampling(seed=0, temperature=0.0), 0.0, (), None) for logits in runner.forward(rows)]
    picks = runner.chooser.choose(wants)
    place_of = {0: 0, 1: 1, 3: 3, 4: 4}  # the third has a token that is known, the last none
    rows = []
    for slot in range(NUM_SLOTS - 1):
        new = [UNREAD_ID] if slot in place_of else [77]
        unread = Unread(picks, place_of[slot]) if slot in place_of else None
        rows.append(Row(slot, len(prompts[slot]), np.array(new, np.int32), 1, unread=unread))
    second = runner.forward(rows)
    chosen = picks.read()
    for row, logits in zip(rows, second, strict=True):
        slot = row.slot
        assert int(chosen[slot]) == int(logits_of(loaded, prompts[slot])[-1].argmax())
        mirror.ids[slot] = [*prompts[slot], int(chosen[slot]) if slot in place_of else 77]
        assert mirror.distance(slot, np.asarray(logits), 1) < CLOSE
    runner.close()
