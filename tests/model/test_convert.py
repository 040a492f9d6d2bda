"""The bundled model converted to safetensors: the same tokens and the same logits as llama.cpp's."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.tokenizer import Vocabulary as LlamaVocabulary
from proxy_inference_engine.runners.mlx.model import MlxModel, load_model
from tests.model.conftest import CONVERTER
from tests.model.reference import f32_weights, logits_in_f32

pytestmark = pytest.mark.model

PROMPTS = (
    "The capital of France is",
    "Once upon a time there was a small cat that",
    "def fibonacci(n):\n    ",
    "The quick brown fox jumps over the lazy dog. " * 8,
)
TEXTS = (
    "Hello, world!",
    "  two  spaces\t\ttabs\r\n\n\nlines ",
    "It's 12345.678, isn't it? ½ ² ٣ 千",
    "naïve café e\u0301 日本語 русский 😀👩‍👩‍👧",
    "<|im_start|>user\n<|im_end|><|endoftext|><repo_name>",
    "def f(x):\n\treturn {'a': [1, 2, 3]}\n",
    "\x00\x01\u0085\u00a0\u2028\ufeff",
    " " * 50 + "\n" * 20,
)


@pytest.fixture(scope="module")
def converted(bundled_folder: Path) -> MlxModel:
    return load_model(bundled_folder, "converted")


@pytest.fixture(scope="module")
def vocabulary() -> LlamaVocabulary:
    return LlamaVocabulary(Model(resolve(None).path, vocab_only=True))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """The same weights in 32 bits."""
    model = Model(f32_weights(tmp_path_factory.mktemp("reference") / "f32.gguf"))
    yield model
    model.close()


def weights_of(folder: Path) -> dict[str, mx.array]:
    weights = mx.load(str(folder / "model.safetensors"))
    assert isinstance(weights, dict)
    return weights


def logits_of(model: MlxModel, ids: list[int]) -> NDArray[np.float32]:
    logits: NDArray[np.float32] = np.array(model.model(mx.array([ids])))[0]
    return logits


@pytest.mark.parametrize("prompt", PROMPTS)
def test_logits_are_those_of_llama_cpp(converted: MlxModel, reference: Model, prompt: str) -> None:
    ids = converted.vocabulary.encode(prompt)
    expected, got = logits_in_f32(reference, ids), logits_of(converted, ids)
    assert np.array_equal(got.argmax(axis=1), expected.argmax(axis=1))
    assert np.abs(got - expected).max() < 2e-3  # seen: 2e-4; the values spread over 5


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_are_those_of_llama_cpp(converted: MlxModel, vocabulary: LlamaVocabulary, text: str) -> None:
    assert converted.vocabulary.encode(text) == vocabulary.encode(text)


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs", "Cn", "Co"]), max_size=60))
def test_tokens_of_any_text(converted: MlxModel, vocabulary: LlamaVocabulary, text: str) -> None:
    assert converted.vocabulary.encode(text) == vocabulary.encode(text)


def test_the_vocabulary_is_that_of_llama_cpp(converted: MlxModel, vocabulary: LlamaVocabulary) -> None:
    own = converted.vocabulary
    assert own.num_tokens == vocabulary.num_tokens
    assert own.specials == vocabulary.specials
    assert own.control_ids == vocabulary.control_ids
    assert own.end_ids == vocabulary.end_ids
    assert own.bos_id == vocabulary.bos_id
    pieces = ((own.token_bytes(token_id), vocabulary.token_bytes(token_id)) for token_id in range(own.num_tokens))
    assert all(one == other for one, other in pieces)


def test_what_the_files_say(converted: MlxModel) -> None:
    model = Model(resolve(None).path, vocab_only=True)
    info = converted.info
    assert info.chat_template == model.metadata("tokenizer.chat_template")
    assert (info.architecture, info.context_tokens, info.description) == ("llama", 8192, "135M f32")
    assert converted.config["rope_theta"] == 100_000.0
    assert "lm_head.weight" not in dict(converted.model.parameters())


def test_bf16_is_the_nearest(bundled_folder: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, CONVERTER, "--dtype", "bf16", "--out", tmp_path], check=True)
    exact, rounded = weights_of(bundled_folder), weights_of(tmp_path)
    assert exact.keys() == rounded.keys()
    assert all(mx.array_equal(values.astype(mx.bfloat16), rounded[name]) for name, values in exact.items())
    assert json.loads((tmp_path / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_files_are_json_that_people_can_read(bundled_folder: Path) -> None:
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        assert len((bundled_folder / name).read_text().splitlines()) > 1
        assert isinstance(json.loads((bundled_folder / name).read_text()), dict)
