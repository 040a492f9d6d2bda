"""Vectors on MLX: the mean of the last hidden states, in whatever pieces, over every tiny architecture."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache
from numpy.typing import NDArray

from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.runners.base import TokenIds
from proxy_inference_engine.runners.mlx.embedding import MlxEmbedder
from proxy_inference_engine.runners.mlx.head import OutputHead
from proxy_inference_engine.runners.mlx.model import MlxModel
from tests.tiny.models import WIDTH
from tests.tiny.runners import WRITERS, load_tiny, make_runner

CLOSE = 1e-4


def text(length: int, seed: int = 1) -> TokenIds:
    return np.random.default_rng(seed).integers(10, 500, length).astype(np.int32)


@pytest.fixture(scope="module", params=WRITERS)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MlxModel:
    return load_tiny(request.param, tmp_path_factory.getbasetemp())


@pytest.fixture
def embedder(loaded: MlxModel) -> MlxEmbedder:
    return MlxEmbedder(loaded, OutputHead(loaded.model), max_tokens=300)


def mean_of(loaded: MlxModel, ids: TokenIds) -> NDArray[np.float32]:
    hidden = OutputHead(loaded.model).hidden(mx.array(ids)[None], make_prompt_cache(loaded.model))
    mean: NDArray[np.float32] = np.array(hidden)[0].mean(axis=0)
    return mean


def embed(embedder: MlxEmbedder, texts: list[TokenIds], max_tokens: int) -> tuple[NDArray[np.float32], int]:
    """The vectors, and in how many pieces they came."""
    embedder.begin(texts)
    for num_pieces in range(1, 50):
        vectors = embedder.advance(max_tokens)
        if vectors is not None:
            return vectors, num_pieces
    raise AssertionError("no end")


def test_what_it_says_of_itself(loaded: MlxModel, embedder: MlxEmbedder) -> None:
    info = embedder.info
    assert (info.pooling, info.num_dimensions, info.max_tokens) == ("mean", WIDTH, 300)
    assert info.prefix == (() if loaded.vocabulary.bos_id is None else (loaded.vocabulary.bos_id,))


@pytest.mark.parametrize(("max_tokens", "num_pieces"), [(7, 19), (45, 3), (1000, 1)])
def test_vectors(loaded: MlxModel, embedder: MlxEmbedder, max_tokens: int, num_pieces: int) -> None:
    texts = [text(40), text(1, 2), text(90, 3)]
    vectors, pieces = embed(embedder, texts, max_tokens)
    assert vectors.shape == (3, WIDTH) and vectors.dtype == np.float32
    assert pieces == num_pieces
    for vector, ids in zip(vectors, texts, strict=True):
        assert np.abs(vector - mean_of(loaded, ids)).max() < CLOSE


def test_a_long_text_is_never_computed_at_once(loaded: MlxModel, embedder: MlxEmbedder) -> None:
    """Answers that are being written wait for a piece, not for a text."""
    embedder.max_batch_tokens = 64
    ids = text(200)
    vectors, num_pieces = embed(embedder, [ids], 50)
    assert num_pieces == 4
    for found in (vectors, embed(embedder, [ids], 1000)[0]):
        assert np.abs(found[0] - mean_of(loaded, ids)).max() < CLOSE


def test_a_batch_takes_the_place_of_one_that_was_not_finished(embedder: MlxEmbedder) -> None:
    expected, _ = embed(embedder, [text(20)], 1000)
    embedder.begin([text(30, 4), text(30, 5)])
    assert embedder.advance(1) is None
    again, _ = embed(embedder, [text(20)], 1000)
    assert np.array_equal(again, expected)


async def test_beside_answers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Through the engine's thread: another one than the one that loaded the model."""
    runner = make_runner("llama", tmp_path_factory.getbasetemp())
    expected, _ = embed(runner.embedder, [text(30)], 1000)
    worker = Worker(StepEngine(runner, max_cache_bytes=0))
    worker.start()
    try:
        vectors = await worker.embed([text(30).tolist()], tenant="t")
    finally:
        worker.stop()
    assert np.abs(vectors[0] - expected[0]).max() < CLOSE
