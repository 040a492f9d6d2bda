"""Images through the real vLLM, over a tiny Qwen 3 VL: what it answers is what it answers to the same image itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image as Pillow

from proxy_inference_engine.config import Config
from proxy_inference_engine.served.model import ServedModel
from tests import vllm
from tests.api.running import Listening, listening
from tests.images import corners, data_url, file_of
from tests.polling import HANG_S

pytestmark = [pytest.mark.model, pytest.mark.vllm]

CONFIG = Config(drain_seconds=0.2)
# Sides of whole tokens, of 8 pixels each: nobody has to make another size of them, each library a little otherwise.
CORNERS, GREY = (data_url(file_of(image)) for image in (corners(40, 24), Pillow.new("RGB", (40, 24), "grey")))
NUM_TOKENS = 8


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not vllm.VISION.exists():
        pytest.skip(vllm.MISSING)
    models = pytest.importorskip("tests.tiny.image_models", reason="its weights are written with MLX")
    folder: Path = models.write_qwen3_vl(tmp_path_factory.mktemp("vllm") / "qwen3-vl", head_dim=32)
    return folder


@pytest.fixture(scope="module")
def process(weights: Path) -> Iterator[vllm.VllmProcess]:
    options = ("--enable-scale-out", "--max-model-len", "1024", "--limit-mm-per-prompt", '{"image": 4, "video": 0}')
    with vllm.running(weights, weights.parent / "images.log", *options, takes_images=True) as process:
        ask(process.url, CORNERS, timeout_s=vllm.START_S, model=vllm.NAME)  # the first makes what reads images
        yield process


@pytest.fixture(scope="module")
def live(process: vllm.VllmProcess, weights: Path) -> Iterator[Listening]:
    with (
        vllm.over(process.url, weights, weights.parent) as model,
        listening([ServedModel.of(model, CONFIG)], CONFIG) as live,
    ):
        yield live


def ask(url: str, *images: str, timeout_s: float = HANG_S, **fields: Any) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": image}} for image in images]
    messages = [{"role": "user", "content": [*content, {"type": "text", "text": "What is it?"}]}]
    body = {"messages": messages, "max_tokens": NUM_TOKENS, "temperature": 0, "logprobs": True, **fields}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=timeout_s)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def logprobs(answer: dict[str, Any]) -> list[float]:
    return [each["logprob"] for each in answer["choices"][0]["logprobs"]["content"]]


@pytest.mark.parametrize("images", [(CORNERS,), (GREY,), (CORNERS, GREY), (GREY, CORNERS)])
def test_it_sees_what_it_sees_by_itself(live: Listening, process: vllm.VllmProcess, images: tuple[str, ...]) -> None:
    """Each token as likely, by the same number of tokens of the prompt."""
    ours, its = ask(live.url, *images, ignore_eos=True), ask(process.url, *images, ignore_eos=True, model=vllm.NAME)
    assert ours["usage"]["prompt_tokens"] == its["usage"]["prompt_tokens"]
    assert logprobs(ours) == pytest.approx(logprobs(its), abs=1e-3)


def test_another_image_is_another_prompt(live: Listening) -> None:
    found = [logprobs(ask(live.url, *images)) for images in ((CORNERS,), (GREY,), (CORNERS, GREY), (GREY, CORNERS))]
    assert len({tuple(each) for each in found}) == 4


@pytest.mark.parametrize("size", [(640, 480), (3, 5), (90, 5), (5, 90)])
def test_it_counts_as_we_do(live: Listening, size: tuple[int, int], caplog: pytest.LogCaptureFixture) -> None:
    """Also where the image has to become smaller or larger."""
    answer = ask(live.url, data_url(file_of(corners(*size))))
    assert answer["usage"]["completion_tokens"] and not caplog.records


def test_the_choices_of_one_request_see_the_same(live: Listening) -> None:
    answer = ask(live.url, CORNERS, n=3, max_tokens=1)
    first, *others = [choice["logprobs"]["content"][0]["logprob"] for choice in answer["choices"]]
    assert others == pytest.approx([first, first], abs=1e-3)


def test_a_format_binds_what_is_said_of_it(live: Listening) -> None:
    format_ = {"type": "choice", "choices": ["a cat", "a dog"]}
    answer = ask(live.url, CORNERS, response_format=format_, max_tokens=20)
    assert answer["choices"][0]["message"]["content"] in ("a cat", "a dog")
