"""Images before a far engine: it gets them beside a prompt with one token for each, and we know how many they become.

The far side of these tests counts as the fake model does.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image as Pillow

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.far import images
from proxy_inference_engine.far.model import FarModel
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import IMAGE_TEMPLATE, MARKER, FakeImageEncoder, FakeRunner
from proxy_inference_engine.served.model import ServedModel
from tests.api.running import Listening, listening
from tests.api.test_images import APIS, num_prompt_tokens
from tests.far import CONTEXT, IMAGE_ID, FarSide, far_model, far_side, images_of
from tests.images import blue, data_url, file_of, plain, red
from tests.polling import wait_until

FAR, NEAR = "far", "near"
CONFIG = Config(drain_seconds=0.2)
Json = dict[str, Any]


class _Broken(FakeImageEncoder):
    """Its images cannot be written."""

    def seen(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        raise MemoryError


class _Halving(FakeImageEncoder):
    """A model that looks at every second pixel."""

    def seen(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return pixels[::2, ::2]


@dataclass(frozen=True)
class Pair:
    live: Listening
    far: FarSide
    model: FarModel


def start(stack: ExitStack, image_encoder: FakeImageEncoder) -> Pair:
    """A far model and a near one that take images alike."""
    near = FakeRunner(
        lanes=[Lane(1, CONTEXT)],
        chat_template=IMAGE_TEMPLATE,
        defined_tokens=(MARKER,),
        image_encoder=FakeImageEncoder(),
    )
    far = stack.enter_context(far_side(defined_tokens=(MARKER,)))
    worker = Worker(StepEngine(near, max_cache_bytes=0))
    worker.start()
    stack.callback(worker.stop)
    model = stack.enter_context(far_model(far.url, like=near, image_encoder=image_encoder))
    models = [ServedModel.of(model, CONFIG), ServedModel.of(worker, CONFIG, name=NEAR)]
    return Pair(stack.enter_context(listening(models, CONFIG)), far, model)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def pair(stack: ExitStack) -> Pair:
    return start(stack, FakeImageEncoder())


def ask(http: httpx.Client, path: str, *parts: str, model: str = FAR, **fields: Any) -> httpx.Response:
    body, _ = APIS[path]
    return http.post(path, json={**body(*parts), "model": model, **fields})


@pytest.mark.parametrize("path", APIS)
def test_images_go_there_in_order_and_are_counted_here(pair: Pair, path: str) -> None:
    parts = ("Look: ", red(40, 20), " and ", data_url(file_of(Pillow.new("RGB", (33, 17), "blue"), "WEBP")), "?")
    with pair.live.http() as http:
        far, near = (ask(http, path, *parts, model=name) for name in (FAR, NEAR))
    assert far.status_code == near.status_code == 200, far.text
    assert num_prompt_tokens(far.json()) == num_prompt_tokens(near.json())
    (asked,) = pair.far.asked
    first, second = images_of(asked)
    assert (first.size, second.size) == ((40, 20), (33, 17))
    assert np.array_equal(np.asarray(first), np.asarray(Pillow.new("RGB", (40, 20), "red")))
    assert np.asarray(second)[0, 0, 2] > 200 > np.asarray(second)[0, 0, 0]
    ids: list[int] = asked["token_ids"]
    places = [place for place, token_id in enumerate(ids) if token_id == IMAGE_ID]
    assert bytes(ids[places[0] - len("Look: [") : places[0]]) == b"Look: [", ids
    assert bytes(ids[places[0] + 1 : places[1]]) == b"] and [" and len(places) == 2


@pytest.mark.parametrize("path", APIS)
def test_what_is_sent_of_them_is_bounded(pair: Pair, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of eighty million pixels is a third of a gigabyte, and each of sixteen choices was sent it."""
    monkeypatch.setattr(images, "MAX_SENT_BYTES", 1_000)
    with pair.live.http() as http:
        assert ask(http, path, "What is ", red(), "?").status_code == 200
        noise = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
        refused = ask(http, path, "What is ", data_url(file_of(Pillow.fromarray(noise), "PNG")), "?")
    assert refused.status_code == 400 and "too large" in refused.json()["error"]["message"]
    assert len(pair.far.asked) == 1


def test_every_choice_has_them(pair: Pair) -> None:
    with pair.live.http() as http:
        answer = ask(http, "/v1/chat/completions", "What is ", red(), "?", n=3, seed=1)
    assert len(answer.json()["choices"]) == 3
    assert [len(images_of(asked)) for asked in pair.far.asked] == [1, 1, 1]


def test_a_text_without_images_has_none(pair: Pair) -> None:
    with pair.live.http() as http:
        assert ask(http, "/v1/chat/completions", f"What is {MARKER}?").status_code == 200
    assert "content_parts" not in pair.far.asked[0] and IMAGE_ID not in pair.far.asked[0]["token_ids"]


def test_what_the_model_does_not_look_at_is_not_sent(stack: ExitStack) -> None:
    pair = start(stack, _Halving())
    with pair.live.http() as http:
        ask(http, "/v1/chat/completions", red(400, 200))
    assert [image.size for image in images_of(pair.far.asked[0])] == [(200, 100)]


def test_an_image_that_cannot_be_seen_is_refused_by_name(pair: Pair) -> None:
    with pair.live.http() as http:
        refused = ask(http, "/v1/chat/completions", "What is ", data_url(plain(2000, 2000)), "?")
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, "messages[0].content[1]") and not pair.far.asked, error


def test_a_server_without_the_endpoint_takes_none(pair: Pair) -> None:
    """Whether that is known beforehand or not."""
    pair.far.has_generate = False
    with pair.live.http() as http:
        unknown = ask(http, "/v1/chat/completions", "What is ", red(), "?")
        known = ask(http, "/v1/chat/completions", "What is ", red(), "?")
        text = ask(http, "/v1/chat/completions", "What is this?")
    assert unknown.status_code == 503 and "retry-after" in unknown.headers, unknown.text
    error = known.json()["error"]
    assert (known.status_code, error["param"], error["code"]) == (400, "messages", "unsupported_content")
    assert "--enable-scale-out" in error["message"]
    assert text.status_code == 200 and all("content_parts" not in asked for asked in pair.far.asked)


def test_they_go_where_they_can_be_seen(stack: ExitStack) -> None:
    blind, seeing = (stack.enter_context(far_side(defined_tokens=(MARKER,))) for _ in range(2))
    blind.has_generate = False
    like = FakeRunner(lanes=[Lane(1, CONTEXT)], chat_template=IMAGE_TEMPLATE, defined_tokens=(MARKER,))
    model = stack.enter_context(far_model(blind.url, seeing.url, like=like, image_encoder=FakeImageEncoder()))
    live = stack.enter_context(listening([ServedModel.of(model, CONFIG)], CONFIG))
    with live.http() as http:
        for colour in (red(), blue()):
            assert ask(http, "/v1/chat/completions", "What is ", colour, "?").status_code == 200
    assert len(seeing.asked) == 2 and not blind.asked


def test_images_that_cannot_be_written_end_the_request(stack: ExitStack) -> None:
    pair = start(stack, _Broken())
    with pair.live.http() as http:
        failed = ask(http, "/v1/chat/completions", "What is ", red(), "?")
    assert failed.status_code == 500 and "could not be sent on" in failed.json()["error"]["message"]
    wait_until(lambda: pair.model.stats().num_running == pair.model.stats().num_waiting == 0)


def test_an_engine_that_counts_otherwise_is_named_once(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    with pair.live.http() as http:
        ask(http, "/v1/chat/completions", "What is ", red(), "?")
        assert not caplog.records
        pair.far.num_miscounted = 7
        for _ in range(2):
            ask(http, "/v1/chat/completions", "What is ", red(), "?")
    (said,) = [record.getMessage() for record in caplog.records if "counts" in record.getMessage()]
    assert pair.far.url in said and "preprocessor_config.json" in said
