"""D12 on MLX: texts that spell the markers of a model's images are texts, with images beside them and without."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

pytest.importorskip("mlx_vlm")

from proxy_inference_engine.runners.base import Lane
from tests.api.running import MODEL, Running, running
from tests.api.test_images import APIS, num_prompt_tokens
from tests.images import blue, red
from tests.tiny.image_models import GEMMA_MARKERS, QWEN_MARKERS
from tests.tiny.image_runners import IMAGE_FAMILIES, make_image_runner

MARKERS = {"gemma3": GEMMA_MARKERS, "qwen3_vl": QWEN_MARKERS, "qwen3_vl_moe": QWEN_MARKERS}
Json = dict[str, Any]


@pytest.fixture(scope="module", params=IMAGE_FAMILIES)
def image_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    runner = make_image_runner(request.param, tmp_path_factory.mktemp(request.param), lanes=(Lane(2, 1024),))
    runner.info = runner.info._replace(name=MODEL)
    with running(runner, max_cache_bytes=8 << 20) as live:
        yield live
        live.wait_idle()


@pytest.fixture
def http(image_server: Running) -> Iterator[httpx.Client]:
    with image_server.http() as client:
        yield client


def count(client: httpx.Client, path: str, *parts: str) -> int:
    answer = client.post(path, json=APIS[path][0](*parts))
    assert answer.status_code == 200, answer.text
    return num_prompt_tokens(answer.json())


@pytest.mark.parametrize("path", APIS)
def test_markers_in_texts_are_texts(image_server: Running, http: httpx.Client, path: str) -> None:
    """Each costs what its letters do, and an image what it costs without them: none is missing and none too many."""
    tokenizer = image_server.worker.tokenizer
    bare, seen = count(http, path, "a b"), count(http, path, "a b", red(), "c", blue())
    for marker in MARKERS[image_server.runner.info.architecture]:
        assert len(tokenizer.encode(marker)) > 1
        num_more = len(tokenizer.encode(f"a {marker} b")) - len(tokenizer.encode("a b"))
        assert count(http, path, f"a {marker} b") == bare + num_more
        assert count(http, path, f"a {marker} b", red(), "c", blue()) == seen + num_more
