"""Settings of a model that vLLM computes, and its words without its weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.load import is_far, load_far
from proxy_inference_engine.models.load.far import make_engines
from proxy_inference_engine.models.resolve import resolve_words
from proxy_inference_engine.models.watcher import Nobody
from tests.far import far_side
from tests.tiny.vocabulary import NUM_TOKENS, write_byte_tokenizer

FAR: dict[str, Any] = {"engine": "vllm", "url": "http://127.0.0.1:1", "model": "some"}


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A folder as a download without weights leaves it."""
    write_byte_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama", "max_position_embeddings": 77, "hidden_size": 8}')
    return tmp_path


def test_the_words_are_read_without_weights(words: Path) -> None:
    assert resolve_words(str(words)).path == words
    with far_side() as far:
        model = load_far(Config(engine="vllm", url=(far.url,), model=str(words)), Nobody())
        try:
            assert model.tokenizer.num_tokens == NUM_TOKENS and model.info.chat_template is not None
            assert model.info.architecture == "llama" and model.embedding.num_dimensions == 8 and model.is_ready
        finally:
            model.stop()


VISION = {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 3136, "max_pixels": 12845056}
IMAGE_PAD = "<|image_pad|>"


def _describe(words: Path, kind: str, settings: dict[str, Any] | None) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(words / "tokenizer.json"))
    tokenizer.add_special_tokens([tokenizers.AddedToken(IMAGE_PAD, special=True, normalized=False)])
    tokenizer.save(str(words / "tokenizer.json"))
    (words / "config.json").write_text(json.dumps({"model_type": kind, "max_position_embeddings": 77}))
    if settings is not None:
        (words / "preprocessor_config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize(
    ("kind", "settings", "num_tokens"),
    [
        ("qwen2_5_vl", VISION, 17 * 23),
        ("qwen3_vl", {**VISION, "patch_size": 16}, 15 * 20),
        ("qwen2_5_vl", None, None),  # nothing says how images are cut
        ("llama", VISION, None),  # nobody knows what vLLM makes of them
    ],
)
def test_images_are_taken_where_it_is_known_how_many_tokens_they_are(
    words: Path, kind: str, settings: dict[str, int] | None, num_tokens: int | None
) -> None:
    _describe(words, kind, settings)
    model = load_far(Config(engine="vllm", url=("http://127.0.0.1:1",), model=str(words)), Nobody())
    try:
        encoder = model.image_encoder
        assert (encoder is None) == (num_tokens is None)
        if encoder is not None:
            assert encoder.marker == IMAGE_PAD and encoder.tokens(640, 480).num_tokens == num_tokens
    finally:
        model.stop()


@pytest.mark.parametrize("settings", [{"patch_size": "x"}, {"patch_size": 14, "size": [1]}, {"patch_size": 0}])
def test_an_image_processor_that_nobody_understands_is_said(words: Path, settings: dict[str, Any]) -> None:
    _describe(words, "qwen2_vl", settings)
    with pytest.raises(StartupError, match="image processor"):
        load_far(Config(engine="vllm", url=("http://127.0.0.1:1",), model=str(words)), Nobody())


def test_it_starts_before_its_engine(words: Path) -> None:
    said: list[str] = []

    class Listener(Nobody):
        def say(self, text: str) -> None:
            said.append(text)

    model = load_far(Config(engine="vllm", url=("http://127.0.0.1:1",), model=str(words)), Listener())
    try:
        assert not model.is_ready and model.context_tokens == 77
        assert said == ["http://127.0.0.1:1 does not answer yet: requests get 503 until it does"]
    finally:
        model.stop()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({**FAR, "url": ()}, "needs url"),
        ({**FAR, "model": None}, "needs model"),
        ({**FAR, "exact": True}, "exact is not possible"),
        ({**FAR, "adapters": {"a": "b.gguf"}}, "adapters is not possible"),
        ({**FAR, "draft_model": "x"}, "draft_model is not possible"),
        ({"url": "http://x"}, "url needs engine vllm"),
    ],
)
def test_what_does_not_go_together_is_said(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(StartupError, match=reason):
        is_far(Config(**settings))


def test_engines_are_those_of_the_urls() -> None:
    config = Config(engine="vllm", url="http://a:1, http://b:2/v1,http://a:1", model="x", far_key="k")  # type: ignore[arg-type]
    engines = make_engines(config)
    assert [str(engine.address) for engine in engines] == ["http://a:1", "http://b:2"]
    assert engines[0].headers == {"Authorization": "Bearer k"}
    with pytest.raises(StartupError, match="should be a URL"):
        make_engines(Config(engine="vllm", url=("a:1",), model="x"))


def test_a_model_that_is_not_here_is_missed(tmp_path: Path) -> None:
    with pytest.raises(StartupError):
        resolve_words(str(tmp_path / "none"))
