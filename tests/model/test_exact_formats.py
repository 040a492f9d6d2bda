"""Exact mode with weights of every common format, over every llama.cpp that is installed: the same bits for a text that
is computed token by token, in pieces, whole, and beside others.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from proxy_inference_engine.runners.base import Lane, Row, TokenIds
from proxy_inference_engine.runners.llama_cpp.library import Library
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from tests.model.gguf_files import write_quantised_llama
from tests.model.plain_product import quantised

pytestmark = pytest.mark.model

NUM_SLOTS = 6
FORMATS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")


@pytest.fixture(params=FORMATS)
def exact(request: pytest.FixtureRequest, library: Library, tmp_path: Path) -> Iterator[LlamaRunner]:
    kind = GGMLQuantizationType[request.param]
    path = write_quantised_llama(tmp_path / "m.gguf", kind, lambda values: quantised(library.binding, kind, values))
    settings = Settings(name="tiny", lanes=(Lane(NUM_SLOTS, 256),), threads=2, is_exact=True)
    runner = LlamaRunner(Model(path, library=library, is_exact=True), settings)
    yield runner
    runner.close()


def logits(runner: LlamaRunner, ids: TokenIds, size: int) -> NDArray[np.float32]:
    """After the last token, where so many are computed at a time."""
    for start in range(0, len(ids), size):
        (found,) = runner.forward([Row(0, start, ids[start : start + size], 1)])
    last: NDArray[np.float32] = found[0].copy()
    runner.release(0)
    return last


def test_how_tokens_come_together_changes_no_bit(exact: LlamaRunner) -> None:
    texts = [np.random.default_rng(seed).integers(4, 260, 40 + seed, np.int32) for seed in range(NUM_SLOTS)]
    alone = [logits(exact, ids, 1) for ids in texts]
    for ids, expected in zip(texts, alone, strict=True):
        for size in (3, 16, len(ids)):
            assert np.array_equal(logits(exact, ids, size), expected), size
    for slot, ids in enumerate(texts):
        exact.forward([Row(slot, 0, ids[:-1], 0)])
    batch = exact.forward([Row(slot, len(ids) - 1, ids[-1:], 1) for slot, ids in enumerate(texts)])
    assert all(np.array_equal(found[0], expected) for found, expected in zip(batch, alone, strict=True))
