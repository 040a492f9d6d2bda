"""Slots computed together: the same as each alone, whoever comes and goes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

mx = pytest.importorskip("mlx.core")

from mlx_lm.utils import load_model  # noqa: E402

from proxy_inference_engine.runners.mlx.memory.decode_group import can_decode_together, worth_grouping  # noqa: E402
from proxy_inference_engine.runners.mlx.memory.snapshots import CannotGoBack, Snapshots  # noqa: E402
from proxy_inference_engine.runners.mlx.rows import SlotRow  # noqa: E402
from tests.tiny import write_gemma3_text, write_lfm2, write_llama, write_qwen3_next  # noqa: E402

WRITERS: dict[str, Callable[[Path], Path]] = {
    "gemma3_text": write_gemma3_text,
    "lfm2": write_lfm2,
    "qwen3_next": write_qwen3_next,
    "llama": write_llama,
}
NUM_SLOTS = 5
SLOT_TOKENS = 160
CLOSE = 5e-5  # a token that is not seen moves logits by more than 0.1


class Watched:
    """The model, and how many sequences each call had."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.batches: list[int] = []

    def __call__(self, ids: Any, cache: Any = None) -> Any:
        self.batches.append(ids.shape[0])
        return self._model(ids, cache=cache)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class Texts:
    """Slots, and the ids that each should hold."""

    def __init__(self, model: Any, watch: type[Watched] = Watched) -> None:
        self.model = watch(model)
        self.slots = Snapshots(self.model, NUM_SLOTS, SLOT_TOKENS)  # type: ignore[arg-type]  # called like one
        self.ids: list[list[int]] = [[] for _ in range(NUM_SLOTS)]
        self._random = np.random.default_rng(7)

    def feed(self, lengths: dict[int, int], *, is_checked: bool = True) -> float:
        """So many random ids more to each; how far the logits are from those of the whole text alone.

        A mistake stays in a slot's state, so it is enough to look every now and then.
        """
        rows = []
        for slot, length in sorted(lengths.items()):
            new = self._random.integers(10, 500, length).tolist()
            rows.append(SlotRow(slot, len(self.ids[slot]), mx.array(new, dtype=mx.int32), 1))
            self.ids[slot] += new
        found = self.slots.forward(rows)
        if not is_checked:
            mx.eval(found)
            return 0.0
        return max(self._distance(row.slot, logits) for row, logits in zip(rows, found, strict=True))

    def _distance(self, slot: int, logits: Any) -> float:
        expected: NDArray[np.float32] = np.array(self.model._model(mx.array([self.ids[slot]])))[0, -1]
        assert logits.shape == (1, *expected.shape)
        return float(np.abs(np.array(logits)[0] - expected).max())


@pytest.fixture(scope="module", params=WRITERS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load_model(WRITERS[request.param](tmp_path_factory.mktemp(request.param)))[0]


def test_rows_of_one_token_share_a_call(model: Any) -> None:
    texts = Texts(model)
    texts.feed({0: 5, 1: 20, 2: 60})
    texts.model.batches.clear()
    every_window_fills = range(45)
    distances = [texts.feed({0: 1, 1: 1, 2: 1}, is_checked=i % 11 == 0) for i in every_window_fills]
    assert max(distances) < CLOSE
    assert texts.model.batches == [3] * 45


def test_prompts_in_between_leave_the_group_alone(model: Any) -> None:
    texts = Texts(model)
    texts.feed({0: 30, 1: 40})
    texts.feed({0: 1, 1: 1})
    texts.model.batches.clear()
    assert texts.feed({3: 17}) < CLOSE
    assert texts.feed({0: 1, 1: 1, 3: 8}) < CLOSE
    assert texts.feed({0: 1, 1: 1, 3: 1}) < CLOSE
    assert texts.feed({0: 1}) < CLOSE
    assert texts.model.batches == [1, 2, 1, 3, 1]


def test_members_are_copied_cut_and_released(model: Any) -> None:
    texts = Texts(model)
    texts.feed({0: 10, 1: 12, 2: 40})
    for _ in range(3):
        texts.feed({0: 1, 1: 1, 2: 1})
    segment = texts.slots.export(1, 0, 15)
    texts.slots.restore(4, [segment], 15)
    texts.ids[4] = list(texts.ids[1])
    assert texts.feed({0: 1, 1: 1, 2: 1}) < CLOSE
    assert texts.feed({4: 2}) < CLOSE
    texts.slots.release(0)
    texts.ids[0] = []
    assert texts.feed({0: 6, 1: 1, 4: 1}) < CLOSE
    assert texts.feed({0: 1, 1: 1, 2: 1, 4: 1}) < CLOSE
    try:
        texts.slots.truncate(1, 16)
        texts.ids[1] = texts.ids[1][:16]
    except CannotGoBack:
        assert model.model_type in ("lfm2", "qwen3_next")
    assert texts.feed({0: 1, 1: 1, 2: 1, 4: 1}) < CLOSE
    for slot in range(NUM_SLOTS):
        texts.slots.release(slot)
        texts.ids[slot] = []
    assert texts.feed({0: 3, 1: 3}) < CLOSE


def test_a_group_that_cannot_be_ordered_stays_as_it_was(model: Any) -> None:
    def fail(caches: list[Any]) -> Any:
        raise MemoryError("no room")

    texts = Texts(model)
    texts.feed({0: 30, 1: 33, 2: 5})
    texts.feed({0: 1, 1: 1})
    row = SlotRow(2, 5, mx.array([3]), 1, fail)
    with pytest.raises(MemoryError):
        texts.slots.forward([SlotRow(0, 31, mx.array([9]), 1), SlotRow(1, 34, mx.array([9]), 1), row])
    for slot in range(3):
        texts.slots.truncate(slot, len(texts.ids[slot]))
    assert texts.feed({0: 1, 1: 1, 2: 1}) < CLOSE


class Aligned(Watched):
    """An architecture that takes every text of a batch to be as long as the first."""

    def __call__(self, ids: Any, cache: Any = None) -> Any:
        for layer in cache if ids.shape[0] > 1 else ():
            if hasattr(layer, "left_padding") and layer.left_padding is not None:
                layer.left_padding = mx.zeros_like(layer.left_padding)
        return super().__call__(ids, cache)


class Alone(Watched):
    def __call__(self, ids: Any, cache: Any = None) -> Any:
        if ids.shape[0] > 1:
            raise ValueError("one text at a time")
        return super().__call__(ids, cache)


def test_only_what_is_proved_is_computed_together(model: Any) -> None:
    assert can_decode_together(model)
    assert not can_decode_together(Alone(model))  # type: ignore[arg-type]
    assert not can_decode_together(Aligned(model))  # type: ignore[arg-type]
    texts = Texts(model, Alone)
    texts.feed({0: 5, 1: 20})
    assert texts.feed({0: 1, 1: 1}) < CLOSE
    assert set(texts.model.batches) == {1}


@pytest.mark.parametrize("seed", range(2))
def test_any_schedule_gives_what_each_text_gives_alone(model: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    texts = Texts(model)
    num_before = len(texts.model.batches)
    for step in range(24):
        lengths = {slot: int(random.choice([1, 1, 1, 1, 2, 30])) for slot in range(NUM_SLOTS) if random.random() < 0.8}
        lengths = {slot: num for slot, num in lengths.items() if len(texts.ids[slot]) + num <= SLOT_TOKENS}
        assert not lengths or texts.feed(lengths, is_checked=step % 4 == 3) < CLOSE
        source, target = random.integers(NUM_SLOTS, size=2).tolist()
        match random.integers(6):
            case 0:
                texts.slots.release(target)
                texts.ids[target] = []
            case 1 if texts.ids[source]:
                segment = texts.slots.export(source, 0, len(texts.ids[source]))
                texts.slots.restore(target, [segment], segment.num_tokens)
                texts.ids[target] = list(texts.ids[source])
            case _:
                pass
    assert max(texts.model.batches[num_before:]) > 1


@pytest.mark.parametrize(
    ("num_tokens", "expected"),
    [
        ({}, []),
        ({3: 10}, []),
        ({3: 10, 1: 2000}, [1, 3]),  # two always are: twice the longer is never more than twice the sum
        ({0: 5000, 1: 6000, 2: 7000}, [0, 1, 2]),
        ({4: 10, 2: 20, 0: 400}, [0, 2, 4]),
        ({0: 1000, 1: 90000, 2: 1200, 3: 900}, [0, 2, 3]),
        ({0: 1000, 1: 90000, 2: 30000, 3: 30}, [0, 3]),
    ],
)
def test_what_is_worth_grouping(num_tokens: dict[int, int], expected: list[int]) -> None:
    assert worth_grouping(num_tokens) == expected
