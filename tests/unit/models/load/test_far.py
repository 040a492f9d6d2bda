"""Settings of a model that vLLM computes, and its words without its weights."""

from pathlib import Path
from typing import Any

import pytest

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
