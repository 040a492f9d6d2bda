"""The pool and the decoder of ours beside the model's own layers over plain slots. The kernels are stood in for: they
need a CUDA device, where the trial at load compares them."""

from collections.abc import Iterator, Sequence

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_map
from mlx_lm.models import llama, qwen3
from numpy.typing import NDArray

from proxy_inference_engine.runners.mlx.cuda import kernels, products
from proxy_inference_engine.runners.mlx.cuda.decoder import make_decoder
from proxy_inference_engine.runners.mlx.cuda.fusion import fuse
from proxy_inference_engine.runners.mlx.cuda.pool import KvPool
from proxy_inference_engine.runners.mlx.head import OutputHead
from proxy_inference_engine.runners.mlx.memory import lanes
from proxy_inference_engine.runners.mlx.memory.slots import SlotMemory
from proxy_inference_engine.runners.mlx.rows import Batch, SlotRow
from tests.unit.runners.mlx.cuda import reference_kernels

_CONFIG = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 101,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.fixture(autouse=True)
def reference(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (kernels, products):
        monkeypatch.setattr(module, "kernel", reference_kernels.kernel)
    mx.disable_compile()  # what stands in for the kernels writes to the pool while it is traced
    yield
    mx.enable_compile()


def _model(kind: str) -> nn.Module:
    mx.random.seed(5)
    model: nn.Module
    if kind == "qwen3":
        args = qwen3.ModelArgs.from_dict({**_CONFIG, "model_type": "qwen3", "tie_word_embeddings": True})
        model = qwen3.Model(args)
    else:
        scaling = {**_LLAMA3, "original_max_position_embeddings": 16} if kind == "llama3" else None
        config = {**_CONFIG, "model_type": "llama", "rope_scaling": scaling, "attention_bias": kind == "bias"}
        model = llama.Model(llama.ModelArgs.from_dict(config))
    model.update(tree_map(_random, model.parameters()))  # type: ignore[no-untyped-call]
    fuse(model)
    return model


def _random(weights: mx.array) -> mx.array:
    spread, middle = (0.3, 1.0) if weights.ndim == 1 else (0.15, 0.0)
    return (mx.random.normal(weights.shape) * spread + middle).astype(mx.float16)


class Pair:
    """The same sequences in a pool and in slots."""

    def __init__(self, kind: str, lengths: Sequence[int]) -> None:
        model = _model(kind)
        head = OutputHead(model)
        pool = lanes._make_pool(model, head, 8, 64)
        assert pool is not None
        self.pool: KvPool = pool
        self.slots = SlotMemory(model, head, len(model.layers))
        self.random = np.random.default_rng(3)
        self.starts = list(lengths)
        prompts = [mx.array(self.random.integers(0, 101, length)) for length in lengths]
        for memory in (self.pool, self.slots):
            memory.forward([SlotRow(slot, 0, ids, 1) for slot, ids in enumerate(prompts)])
            mx.eval(memory.started())

    def step(self, slots: Sequence[int], counts: Sequence[int], width: int) -> float:
        """Compute a batch in both; how much the logits differ, as a part of what they spread."""
        ids = self.random.integers(0, 101, (len(slots), width)).astype(np.int32)
        starts = np.array([self.starts[slot] for slot in slots], np.int32)
        batch = Batch(mx.array(ids), _numbers(slots), starts, starts, _numbers(counts))
        found, wanted = (np.array(memory.forward_batch(batch).astype(mx.float32)) for memory in (self.pool, self.slots))
        mx.eval(self.slots.started())
        for slot, count in zip(slots, counts, strict=True):
            self.starts[slot] += count
        return float(np.sqrt(np.square(found - wanted).mean()) / wanted.std())

    def prompt(self, slot: int, num_tokens: int, num_logits: int) -> float:
        """The same for one row that is computed alone."""
        row = SlotRow(slot, self.starts[slot], mx.array(self.random.integers(0, 101, num_tokens)), num_logits)
        found, wanted = (np.array(memory.forward([row])[0].astype(mx.float32)) for memory in (self.pool, self.slots))
        mx.eval(self.pool.started(), self.slots.started())
        self.starts[slot] += num_tokens
        assert found.shape == wanted.shape == (num_logits, 101)
        return float(np.sqrt(np.square(found - wanted).mean()) / wanted.std()) if num_logits else 0.0


def _numbers(values: Sequence[int]) -> NDArray[np.int32]:
    return np.array(values, np.int32)


_MODELS = ["llama", "llama3", "qwen3"]


@pytest.mark.parametrize("kind", _MODELS)
def test_batches_are_what_the_model_computes(kind: str) -> None:
    pair = Pair(kind, [5, 12, 1, 30])
    for slots, counts, width in (([0], [1], 1), ([3], [3], 4), ([0, 1, 2, 3], [1, 1, 1, 1], 1), ([0, 2], [8, 3], 8)):
        assert pair.step(slots, counts, width) < 0.01


@pytest.mark.parametrize("kind", _MODELS)
def test_prompts_are_what_the_model_computes(kind: str) -> None:
    pair = Pair(kind, [5, 12])
    for num_tokens, num_logits in ((1, 1), (9, 9), (7, 0), (3, 2)):
        assert pair.prompt(1, num_tokens, num_logits) < 0.01
    assert pair.step([0, 1], [1, 1], 1) < 0.01


def test_steps_go_on_where_the_device_is() -> None:
    pair = Pair("llama", [5, 12])
    for _ in range(3):
        assert pair.step([0, 1], [1, 1], 1) < 0.01
    following = pair.pool._following
    assert following is not None and following.array[:2].tolist() == pair.starts == [8, 15]
    pair.starts = [4, 15]  # one is cut off: what the device knows is not so any more
    pair.pool.truncate(0, 4)
    pair.slots.truncate(0, 4)
    assert pair.step([0, 1], [1, 1], 1) < 0.01
    assert pair.step([1], [1], 1) < 0.01


def test_what_is_exported_can_be_restored() -> None:
    pair = Pair("llama", [20, 9])
    for memory in (pair.pool, pair.slots):
        segments = [memory.export(0, 0, 8), memory.export(0, 8, 20)]
        memory.restore(2, segments, 17)
    pair.starts.append(17)
    assert pair.step([2, 0], [1, 1], 1) < 0.01


def test_other_models_are_left_to_their_own_layers() -> None:
    """A bias is more than our products compute; attention over the pool stays."""
    pair = Pair("bias", [5, 12, 1])
    assert pair.pool._decoder is None
    assert pair.step([0, 1, 2], [1, 1, 1], 1) < 0.01
    assert pair.step([0, 1], [2, 4], 4) < 0.01


def test_a_decoder_that_computes_something_else_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_kernels, "_gated", lambda both: mx.split(both, 2, axis=-1)[1])
    model = _model("llama")
    pool = lanes._make_pool(model, OutputHead(model), 2, 64)
    assert pool is not None and pool._decoder is None


def test_kinds_that_have_a_decoder() -> None:
    for kind, has_one in (("llama", True), ("llama3", True), ("qwen3", True), ("bias", False)):
        model = _model(kind)
        OutputHead(model)
        shape = kernels.PoolShape(layers=2, slots=1, heads=2, tokens=16, width=32)
        assert (make_decoder(model, kernels.Kernels(shape, mx.float16, 4)) is not None) == has_one


@pytest.mark.parametrize(
    ("start", "num_tokens", "capacity", "rows", "before"),
    [
        (0, 1, 64, 64, 0),
        (0, 64, 64, 64, 0),
        (63, 2, 128, 128, 63),
        (100, 28, 128, 64, 36),
        (0, 513, 1024, 768, 0),
        (40, 1000, 1088, 1088, 40),
        (300, 600, 4096, 768, 44),
        (1000, 600, 1664, 640, 40),
    ],
)
def test_rows_and_what_they_see_come_in_units(
    start: int, num_tokens: int, capacity: int, rows: int, before: int
) -> None:
    span = kernels.make_span(3, start, num_tokens, capacity)
    assert (span.num_rows, span.num_before) == (rows, before)
    assert span.end == start - before + rows >= start + num_tokens and span.end % kernels.UNIT == 0
