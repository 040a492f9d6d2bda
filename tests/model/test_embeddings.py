"""Embeddings and rankings on llama.cpp: tiny models of every kind, made here, and the bundled one."""

import resource
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from gguf import PoolingType
from openai.types.chat import ChatCompletionMessageParam

from proxy_inference_engine.runners.base import Lane, Runner, TokenIds, Vectors
from proxy_inference_engine.runners.llama_cpp.library import Library
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from tests.api.running import running
from tests.model.conftest import make_runner
from tests.model.gguf_files import CONTEXT, WIDTH, write_bert, write_llama
from tests.model.reference import pooled_vector

TEXTS = ("the cat sat", "money", "a dog on the river bank of paris", "is the mat of the cat a mat", "dog")
Write = Callable[[Path], Path]

# A kind of model, how it pools, and what it wants around a text and between two.
KINDS: dict[str, tuple[Write, str, tuple[tuple[int, ...], ...]]] = {
    "llama": (write_llama, "mean", ((1,), (), ())),
    "llama-mean": (lambda path: write_llama(path, pooling=PoolingType.MEAN), "mean", ((1,), (), ())),
    "llama-last": (lambda path: write_llama(path, pooling=PoolingType.LAST, adds_eos=True), "last", ((1,), (2,), (2,))),
    "llama-sep": (lambda path: write_llama(path, adds_eos=True, adds_sep=True), "mean", ((1,), (2, 3), (2,))),
    "llama-cls": (lambda path: write_llama(path, pooling=PoolingType.CLS), "cls", ((1,), (), ())),
    "bert-mean": (write_bert, "mean", ((2,), (3,), (3,))),
    "bert-cls": (lambda path: write_bert(path, pooling=PoolingType.CLS), "cls", ((2,), (3,), (3,))),
    "bert-rank": (lambda path: write_bert(path, pooling=PoolingType.RANK), "rank", ((2,), (3,), (3,))),
}


def open_runner(path: Path, library: Library | None = None) -> LlamaRunner:
    settings = Settings(name="tiny", lanes=(Lane(2, CONTEXT),), threads=1, cache_bytes=1 << 20)
    return LlamaRunner(Model(path, library=library), settings)


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory, library: Library) -> Iterator[dict[str, LlamaRunner]]:
    folder = tmp_path_factory.mktemp("gguf")
    made = {kind: open_runner(write(folder / f"{kind}.gguf"), library) for kind, (write, _, _) in KINDS.items()}
    yield made
    for runner in made.values():
        runner.close()


def ids_of(runner: Runner, text: str) -> TokenIds:
    info = runner.embedder.info
    return np.array([*info.prefix, *runner.tokenizer.encode(text), *info.suffix], np.int32)


def compute(runner: Runner, texts: Sequence[TokenIds], piece: int = 256) -> Vectors:
    runner.embedder.begin(texts)
    while (vectors := runner.embedder.advance(piece)) is None:
        pass
    return vectors


def are_close(one: Vectors, other: Vectors) -> bool:
    """KV is kept in half precision, and another batch rounds at other places."""
    return np.allclose(one, other, atol=0.02 * float(np.abs(other).max()))


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_model_says_of_itself(runners: dict[str, LlamaRunner], kind: str) -> None:
    runner, (_, pooling, frame) = runners[kind], KINDS[kind]
    info = runner.embedder.info
    assert (info.pooling, info.max_tokens, info.pair_template) == (pooling, CONTEXT, None)
    assert info.num_dimensions == (1 if pooling == "rank" else WIDTH)
    assert (info.prefix, info.middle, info.suffix) == frame
    assert runner.info.can_generate == kind.startswith("llama")


@pytest.mark.parametrize("kind", KINDS)
def test_batched_is_alone_whatever_the_pieces(runners: dict[str, LlamaRunner], kind: str) -> None:
    runner = runners[kind]
    texts = [ids_of(runner, text) for text in TEXTS]
    alone = np.concatenate([compute(runner, [ids]) for ids in texts])
    # A causal model's first token sees nothing but itself.
    assert len({vector.tobytes() for vector in alone}) == (1 if kind == "llama-cls" else len(texts))
    assert alone.shape == (len(texts), runner.embedder.info.num_dimensions)
    for piece in (256, 7, 1):
        assert are_close(compute(runner, texts, piece), alone)
    assert are_close(compute(runner, texts[::-1]), alone[::-1])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("llama", "llama-sep", "bert-rank")])
def test_it_is_what_the_library_pools_itself(runners: dict[str, LlamaRunner], kind: str) -> None:
    """The oracle is llama.cpp's own pooling of one text in one batch."""
    runner = runners[kind]
    for text in TEXTS:
        ids = ids_of(runner, text)
        assert are_close(compute(runner, [ids], 5)[0], pooled_vector(runner._model, ids))


@pytest.mark.parametrize("kind", ["llama", "bert-mean"])
def test_the_context_grows_with_the_texts(runners: dict[str, LlamaRunner], kind: str) -> None:
    runner = runners[kind]
    short, long = ids_of(runner, TEXTS[0]), np.resize(ids_of(runner, TEXTS[2]), CONTEXT)
    before = compute(runner, [short])
    grown = compute(runner, [long])
    assert are_close(compute(runner, [short]), before)
    assert are_close(compute(runner, [long], 100), grown) and not are_close(grown, before)


def test_a_batch_that_was_left_does_not_show(runners: dict[str, LlamaRunner]) -> None:
    runner = runners["llama"]
    wanted = compute(runner, [ids_of(runner, TEXTS[0])])
    runner.embedder.begin([np.resize(ids_of(runner, TEXTS[2]), 400)])
    assert runner.embedder.advance(50) is None
    assert np.array_equal(compute(runner, [ids_of(runner, TEXTS[0])]), wanted)


def test_memory_is_given_back(tmp_path: Path) -> None:
    """A context left behind would be 3 MB a round, the model more."""
    path = write_llama(tmp_path / "tiny.gguf")

    def rounds(count: int) -> int:
        for _ in range(count):
            runner = open_runner(path)
            compute(runner, [np.full(20, 9, np.int32)])
            compute(runner, [np.full(500, 9, np.int32)])
            runner.embedder.begin([np.full(500, 9, np.int32)])
            runner.close()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB

    before = rounds(10)
    assert rounds(40) - before < 40 * 1024


@pytest.mark.parametrize("kind", ["bert-mean", "bert-rank"])
def test_an_encoder_is_served(runners: dict[str, LlamaRunner], tmp_path: Path, kind: str) -> None:
    """The whole way, with a model that cannot generate."""
    with running(open_runner(KINDS[kind][0](tmp_path / "served.gguf"))) as live, live.http() as http:
        if kind == "bert-mean":
            with live.openai(is_strict=False) as client:
                answer = client.embeddings.create(model="tiny", input=list(TEXTS))
            expected = compute(runners[kind], [ids_of(runners[kind], text) for text in TEXTS])
            expected /= np.linalg.norm(expected, axis=1, keepdims=True)
            assert are_close(np.array([item.embedding for item in answer.data], np.float32), expected)
        else:
            body = {"model": "tiny", "query": TEXTS[0], "documents": TEXTS, "return_documents": False}
            results = http.post("/v1/rerank", json=body).json()["results"]
            scores = [result["relevance_score"] for result in results]
            assert scores == sorted(scores, reverse=True) and 0 < scores[-1] < scores[0] < 1
        error = http.post("/v1/completions", json={"model": "tiny", "prompt": "the"}).json()["error"]
        assert "does not generate" in error["message"]


# The bundled model


@pytest.mark.model
def test_the_bundled_model_knows_what_is_alike(weights: Path) -> None:
    """Beside a chat, which goes on; likeness is told without a training for it, so the examples are plain."""
    texts = ["I love my cat.", "My cat is my dearest pet.", "The bank raised its interest rates.", "Interest rates"]
    question: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": "What is the capital of France? Answer briefly."}
    ]
    with running(make_runner(weights, is_exact=True)) as live, live.openai(is_strict=False) as client:
        with ThreadPoolExecutor(1) as pool:
            chat = pool.submit(
                lambda: client.chat.completions.create(model="bundled", messages=question, temperature=0)
            )
            answer = client.embeddings.create(model="bundled", input=texts)
            assert chat.result().choices[0].message.content == "The capital of France is Paris."
        vectors = np.array([item.embedding for item in answer.data])
        likeness = vectors @ vectors.T
        assert np.allclose(np.diag(likeness), 1, atol=1e-5)
        assert likeness[0, 1] > likeness[0, 2] and likeness[2, 3] > likeness[3, 0]
        alone = client.embeddings.create(model="bundled", input=texts[1], dimensions=64).data[0].embedding
        cut = vectors[1, :64] / np.linalg.norm(vectors[1, :64])
        assert np.allclose(alone, cut, atol=0.01)
