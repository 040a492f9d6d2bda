"""Slots of models with windows and recurrent states: what a slot gives never depends on how it got there."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

mx = pytest.importorskip("mlx.core")

from mlx_lm.models.cache import ConcatenateKVCache, KVCache  # noqa: E402
from mlx_lm.utils import load_model  # noqa: E402

from proxy_inference_engine.errors import StartupError  # noqa: E402
from proxy_inference_engine.runners.mlx.memory.snapshots import CannotGoBack, Snapshots  # noqa: E402
from proxy_inference_engine.runners.mlx.rows import Batch, SlotRow  # noqa: E402
from tests.tiny import write_gemma3_text, write_lfm2, write_llama, write_qwen3_next  # noqa: E402
from tests.tiny.models import WINDOW  # noqa: E402

Numbers = NDArray[np.float32]

WRITERS: dict[str, Callable[[Path], Path]] = {
    "gemma3_text": write_gemma3_text,  # windows
    "lfm2": write_lfm2,  # short convolutions
    "qwen3_next": write_qwen3_next,  # linear attention
    "llama": write_llama,  # nothing special: must work too
}
NUM_SLOTS = 4
SLOT_TOKENS = 200
CLOSE = 2e-5  # kernels differ in the order of their sums; a token that is not seen moves logits by more than 0.1
IDS = np.random.default_rng(1).integers(10, 500, (NUM_SLOTS, SLOT_TOKENS)).astype(np.int32)


@pytest.fixture(scope="module", params=WRITERS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return _load(request.param, tmp_path_factory.getbasetemp())


@cache
def _load(name: str, folder: Path) -> Any:
    return load_model(WRITERS[name](folder / name))[0]


@pytest.fixture
def slots(model: Any) -> Snapshots:
    return Snapshots(model, NUM_SLOTS, SLOT_TOKENS)


def _row(slot: int, start: int, stop: int, num_logits: int, source: int | None = None) -> SlotRow:
    return SlotRow(slot, start, mx.array(IDS[slot if source is None else source, start:stop]), num_logits)


def _feed(slots: Snapshots, slot: int, start: int, stop: int, source: int | None = None) -> Numbers:
    """The logits after the last token."""
    found: Numbers = np.array(slots.forward([_row(slot, start, stop, 1, source)])[0])[-1]
    return found


def _alone(model: Any, source: int, stop: int) -> Numbers:
    """The whole text in one pass of the bare model."""
    found: Numbers = np.array(model(mx.array(IDS[source : source + 1, :stop])))[0, -1]
    return found


def _assert_close(found: Numbers, expected: Numbers) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < CLOSE


@pytest.mark.parametrize("stops", [[100], [3, 4, 5], [31, 32, 33, 34, 64, 65], [1, 50, 199, 200]])
def test_chunks_give_what_the_whole_gives(model: Any, slots: Snapshots, stops: list[int]) -> None:
    for start, stop in zip([0, *stops], stops, strict=False):
        found = _feed(slots, 0, start, stop)
    _assert_close(found, _alone(model, 0, stops[-1]))


def test_one_token_at_a_time_gives_what_the_whole_gives(model: Any, slots: Snapshots) -> None:
    """Across a window that fills and turns round twice."""
    for position in range(3 * WINDOW):
        found = _feed(slots, 2, position, position + 1)
    _assert_close(found, _alone(model, 2, 3 * WINDOW))


@pytest.mark.parametrize("num_logits", [0, 1, 3, 50])
def test_as_many_logits_as_wanted(model: Any, slots: Snapshots, num_logits: int) -> None:
    whole = np.array(model(mx.array(IDS[:1, :50])))[0]
    [found] = slots.forward([_row(0, 0, 50, num_logits)])
    assert found.shape == (num_logits, whole.shape[1])
    assert np.abs(np.array(found) - whole[50 - num_logits :]).max(initial=0) < CLOSE


def test_slots_do_not_see_each_other(model: Any, slots: Snapshots) -> None:
    """Rows of all lengths in one pass, again and again."""
    lengths = np.zeros(NUM_SLOTS, dtype=np.int64)
    random = np.random.default_rng(4)
    found: dict[int, Numbers] = {}
    for _ in range(12):
        stops = np.minimum(lengths + random.choice([0, 1, 1, 7, 40], NUM_SLOTS), SLOT_TOKENS)
        rows = [_row(i, lengths[i], stops[i], 1) for i in range(NUM_SLOTS) if stops[i] > lengths[i]]
        for row, logits in zip(rows, slots.forward(rows), strict=True):
            found[row.slot] = np.array(logits)[0]
        lengths = stops
    assert len(found) == NUM_SLOTS
    for slot, last in found.items():
        _assert_close(last, _alone(model, slot, lengths[slot]))


@pytest.mark.parametrize("stops", [[31], [32], [90], [20, 21, 22], [70, 71, 72]])
def test_a_restored_slot_goes_on_like_the_one_it_was_copied_from(slots: Snapshots, stops: list[int]) -> None:
    for start, stop in zip([0, *stops], stops, strict=False):
        _feed(slots, 0, start, stop)
    end = stops[-1]
    segment = slots.export(0, 0, end)
    original = [_feed(slots, 0, end, end + 1), _feed(slots, 0, end + 1, end + 9), _feed(slots, 0, end + 9, end + 10)]
    for slot in 1, 2:  # twice: what the first one writes must not reach the segment
        slots.restore(slot, [segment], end)
        for (start, stop), expected in zip([(0, 1), (1, 9), (9, 10)], original, strict=True):
            assert np.array_equal(_feed(slots, slot, end + start, end + stop, source=0), expected)


def test_a_segment_outlives_its_slot(model: Any, slots: Snapshots) -> None:
    _feed(slots, 0, 0, 60)
    segment = slots.export(0, 0, 60)
    assert segment.num_tokens == 60
    slots.release(0)
    _feed(slots, 0, 0, 100, source=3)
    slots.restore(0, [segment], 60)
    _assert_close(_feed(slots, 0, 60, 70), _alone(model, 0, 70))
    num_bytes = segment.num_bytes
    segment.free()
    assert num_bytes > 0
    _assert_close(_feed(slots, 0, 70, 80), _alone(model, 0, 80))
    with pytest.raises(AssertionError):
        segment.split(3)


def test_a_segment_holds_no_more_than_it_must(model: Any, slots: Snapshots) -> None:
    """Neither room for further tokens nor what has left a window."""
    _feed(slots, 0, 0, 150)
    caches = [one for one in slots.export(0, 0, 150).caches if hasattr(one, "keys")]
    assert caches
    assert {one.keys.shape[2] for one in caches} <= {150, WINDOW}


def test_going_back(model: Any, slots: Snapshots) -> None:
    """Only where nothing has been pushed out or mixed in."""
    _feed(slots, 0, 0, 20)
    _feed(slots, 0, 20, 21)
    slots.truncate(0, 21)
    if model.model_type in ("gemma3_text", "llama"):
        slots.truncate(0, 12)
        _assert_close(_feed(slots, 0, 12, 13), _alone(model, 0, 13))
        slots.truncate(0, 12)
        _assert_close(_feed(slots, 0, 12, 30), _alone(model, 0, 30))
    else:
        with pytest.raises(CannotGoBack):
            slots.truncate(0, 20)
        _assert_close(_feed(slots, 0, 21, 30), _alone(model, 0, 30))
    _feed(slots, 0, 30, 40)
    if model.model_type != "llama":
        with pytest.raises(CannotGoBack):
            slots.truncate(0, 39)
        with pytest.raises(CannotGoBack):
            slots.export(0, 0, 39)
    _assert_close(_feed(slots, 0, 40, 41), _alone(model, 0, 41))
    slots.truncate(0, 0)
    _assert_close(_feed(slots, 0, 0, 9), _alone(model, 0, 9))


def test_an_earlier_state_can_be_copied_where_a_slot_could_go_back(model: Any, slots: Snapshots) -> None:
    _feed(slots, 0, 0, 25)
    if model.model_type in ("lfm2", "qwen3_next"):
        with pytest.raises(CannotGoBack):
            slots.export(0, 0, 24)
    else:
        slots.restore(1, [slots.export(0, 0, 24)], 24)
        _assert_close(_feed(slots, 1, 24, 26, source=0), _alone(model, 0, 26))
    _assert_close(_feed(slots, 0, 25, 26), _alone(model, 0, 26))


@pytest.mark.parametrize("num_before", [0, 20, 40])
def test_a_pass_that_cannot_be_ordered_changes_nothing(model: Any, slots: Snapshots, num_before: int) -> None:
    """The first row was ordered when the second one failed."""

    def fail(caches: list[Any]) -> Any:
        model(mx.array([[7, 8, 9]]), cache=caches)
        raise MemoryError("no room")

    for slot in 0, 1:
        if num_before:
            _feed(slots, slot, 0, num_before)
    rows = [_row(0, num_before, num_before + 2, 1), _row(1, num_before, num_before + 3, 1)._replace(compute=fail)]
    with pytest.raises(MemoryError):
        slots.forward(rows)
    for slot in 0, 1:
        slots.truncate(slot, num_before)
        _assert_close(_feed(slots, slot, num_before, num_before + 3), _alone(model, slot, num_before + 3))


def test_a_row_may_bring_its_own_computation(model: Any, slots: Snapshots) -> None:
    _feed(slots, 0, 0, 10)
    row = _row(0, 10, 12, 1)
    [found] = slots.forward([row._replace(compute=lambda caches: model(row.ids[None], cache=caches)[0, -1:])])
    _assert_close(np.array(found)[0], _alone(model, 0, 12))
    _assert_close(_feed(slots, 0, 12, 13), _alone(model, 0, 13))


def test_batches(model: Any, slots: Snapshots) -> None:
    """Filled up to one width; only the last token that counts has logits."""
    for width, counts in (4, [4, 2, 1]), (1, [1, 1, 1]), (2, [1, 1, 2]):
        starts = [slots._slots[slot].num_tokens for slot in range(3)]
        ids = np.zeros((3, width), dtype=np.int32)
        for slot in range(3):
            ids[slot, : counts[slot]] = IDS[slot, starts[slot] : starts[slot] + counts[slot]]
        numbers = [np.array(values, dtype=np.int32) for values in ([0, 1, 2], starts, starts, counts)]
        logits = np.array(slots.forward_batch(Batch(mx.array(ids), *numbers)))
        for slot in range(3):
            _assert_close(logits[slot], _alone(model, slot, starts[slot] + counts[slot]))
    assert slots.started() == []


def test_slots_end(slots: Snapshots) -> None:
    with pytest.raises(AssertionError):
        slots.forward([_row(0, 1, 2, 1)])  # does not begin where the slot ends
    slots.release(0)
    slots.release(0)
    assert not slots.can_splice


def test_unknown_states_are_refused(model: Any) -> None:
    class Strange:
        def make_cache(self) -> list[Any]:
            return [KVCache(), ConcatenateKVCache()]

    with pytest.raises(StartupError, match="ConcatenateKVCache"):
        Snapshots(Strange(), 1, 10)  # type: ignore[arg-type]  # all that is asked of a model here is its caches
