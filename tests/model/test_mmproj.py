"""mmproj files from the configuration to answers: found, chosen, refused; and images over HTTP."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.load import load_engine
from proxy_inference_engine.models.resolve import find_mmproj, resolve
from proxy_inference_engine.runners.base import ImageEncoder, Lane
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from proxy_inference_engine.runners.llama_cpp.vision.runs import load_vision
from tests.api.running import Running, running
from tests.images import blue, red
from tests.model.mmproj_files import WIDTH, write_mmproj, write_model, write_reader

Json = dict[str, Any]


def image_encoder_of(model: Path, folder: Path, mmproj: str | None = None) -> ImageEncoder | None:
    """Those of a model that was loaded the usual way."""
    config = Config(
        model=str(model), mmproj=mmproj, threads=1, slots=2, kv_memory=8 << 20, cache_memory=1 << 20, cache_dir=folder
    )
    worker = load_engine(config)
    try:
        return worker.image_encoder
    finally:
        worker.stop()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", "gemma3")


def test_files_beside_a_model(tmp_path: Path) -> None:
    file = resolve(str(write_reader(tmp_path / "tiny.gguf", "gemma3")))
    assert find_mmproj(None, file) is None
    for name, expected in (
        ("mmproj.gguf", "mmproj.gguf"),
        ("mmproj-tiny-q8_0.gguf", "mmproj-tiny-q8_0.gguf"),
        ("mmproj-a-bf16.gguf", "mmproj-a-bf16.gguf"),
        ("mmproj-tiny-f16.gguf", "mmproj-tiny-f16.gguf"),
        ("mmproj-a-f32.gguf", "mmproj-tiny-f16.gguf"),
    ):
        (tmp_path / name).touch()
        assert find_mmproj(None, file) == (tmp_path / expected, False)
    assert find_mmproj("none", file) is None
    assert find_mmproj(str(tmp_path / "mmproj.gguf"), file) == (tmp_path / "mmproj.gguf", True)
    with pytest.raises(StartupError, match="no such file"):
        find_mmproj(str(tmp_path / "missing.gguf"), file)


def test_a_model_finds_its_image_encoder(model: Path, tmp_path: Path) -> None:
    image_encoder = image_encoder_of(model, tmp_path)
    assert image_encoder is not None and image_encoder.marker == "<start_of_image>"
    assert image_encoder_of(model, tmp_path, "none") is None


def wrong_files(folder: Path) -> dict[str, Path]:
    """Files that are no image encoder for Gemma 3, by what is said about them."""
    text = folder / "text.gguf"
    text.write_text("hello there")
    whole = write_mmproj(folder / "whole.gguf", "gemma3").read_bytes()
    half, start = folder / "half.gguf", folder / "start.gguf"
    half.write_bytes(whole[: len(whole) // 2])
    start.write_bytes(whole[:200])
    return {
        "of another model": write_mmproj(folder / "wide.gguf", "gemma3", width=2 * WIDTH),
        "'mlp'": write_mmproj(folder / "mlp.gguf", "mlp"),
        "'<image>' in its vocabulary": write_mmproj(folder / "other.gguf", "idefics3"),
        "not a GGUF file": text,
        "breaks off": start,
        "damaged": half,
    }


def test_what_is_set_has_to_be_right(model: Path, tmp_path: Path) -> None:
    for reason, path in wrong_files(tmp_path).items():
        with pytest.raises(StartupError, match=f"mmproj .*{path.name}.*{reason}"):
            image_encoder_of(model, tmp_path, str(path))


def test_what_only_lies_there_need_not_be(model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    beside = model.with_name("mmproj-tiny-f16.gguf")
    for reason, path in wrong_files(tmp_path).items():
        beside.write_bytes(path.read_bytes())
        with caplog.at_level(logging.WARNING):
            assert image_encoder_of(model, tmp_path) is None
        assert reason in caplog.text


@pytest.fixture(scope="module", params=["gemma3", "idefics3", "qwen3vl_merger"])
def image_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = write_model(tmp_path_factory.mktemp(request.param), request.param)
    model = Model(path)
    vision = load_vision(path.with_name("mmproj-tiny-f16.gguf"), model, threads=1, has_gpu=False)
    settings = Settings(name="tiny", lanes=(Lane(2, 1024),), threads=1, cache_bytes=4 << 20)
    with running(LlamaRunner(model, settings, vision)) as live:
        yield live
        live.wait_idle()


def ask(live: Running, *parts: str) -> httpx.Response:
    content: list[Json] = [
        {"type": "image_url", "image_url": {"url": part}}
        if part.startswith("data:")
        else {"type": "text", "text": part}
        for part in parts
    ]
    body = {"model": "tiny", "max_tokens": 8, "temperature": 0, "logprobs": True}
    with live.http() as client:
        return client.post("/v1/chat/completions", json={**body, "messages": [{"role": "user", "content": content}]})


def heard(answer: httpx.Response) -> list[float]:
    assert answer.status_code == 200, answer.text
    return [entry["logprob"] for entry in answer.json()["choices"][0]["logprobs"]["content"]]


def test_images_over_http(image_server: Running) -> None:
    first = ask(image_server, "see ", red(), " now")
    assert heard(first) != heard(ask(image_server, "see ", blue(), " now"))
    assert heard(ask(image_server, "see ", red(), " now")) == pytest.approx(heard(first), abs=0.01)
    without = ask(image_server, "see ", " now").json()["usage"]["prompt_tokens"]
    runner = image_server.runner
    assert runner.image_encoder is not None
    tokens = runner.image_encoder.tokens(32, 32)
    assert first.json()["usage"]["prompt_tokens"] >= without + tokens.num_tokens


def test_an_image_that_is_too_narrow(image_server: Running) -> None:
    answer = ask(image_server, "see ", red(4, 400))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("invalid_image", "messages[0].content[1]")
    assert "cannot be seen" in error["message"]


def test_a_gguf_model_without_the_file(tmp_path: Path) -> None:
    settings = Settings(name="tiny", lanes=(Lane(2, 1024),), threads=1)
    with running(LlamaRunner(Model(write_reader(tmp_path / "tiny.gguf", "gemma3")), settings)) as live:
        answer = ask(live, "see ", red())
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "unsupported_content"
    assert answer.json()["error"]["param"] == "messages[0].content[1]"
