"""How many images a request may have, with its earlier turns, and how large one may be that is stored."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.store import Store, StoreLimits
from tests.api.running import MODEL, Running, running
from tests.api.test_images import APIS, chat_body, image_runner, messages_body, responses_body
from tests.images import data_url, plain, red
from tests.polling import wait_until

Json = dict[str, Any]
LARGE = data_url(plain(4, 4) + bytes(2 << 20))  # what follows the end of a PNG is not looked at


@pytest.fixture(scope="module")
def few() -> Iterator[Running]:
    with running(image_runner(), Config(drain_seconds=0.2, max_images=2)) as live:
        yield live
        live.wait_idle()


@pytest.fixture
def http(few: Running) -> Iterator[httpx.Client]:
    with few.http() as client:
        yield client


def turns(path: str, num_images: int, per_turn: int, last: int) -> Json:
    """Earlier turns with `num_images` in all, then one with `last`."""
    body, _ = APIS[path]
    field = "input" if path == "/v1/responses" else "messages"
    asked = [body("a", *[red()] * per_turn)[field][0] for _ in range(num_images // per_turn)]
    whole: Json = body("a", *[red()] * last)
    whole[field] = [turn for each in asked for turn in (each, {"role": "assistant", "content": "b"})] + whole[field]
    return whole


@pytest.mark.parametrize("path", APIS)
def test_images_that_were_answered_count_less(http: httpx.Client, path: str) -> None:
    """An agent that takes an image in every turn sends all of them again."""
    assert http.post(path, json=turns(path, 14, 1, 2)).status_code == 200
    for body, reason in (
        (turns(path, 2, 1, 3), "at most 2 images."),
        (turns(path, 16, 1, 1), "at most 16 images with those of its earlier turns."),
    ):
        answer = http.post(path, json=body)
        assert answer.status_code == 400 and reason in answer.json()["error"]["message"]


def test_truncation_drops_turns_with_too_many_images(http: httpx.Client) -> None:
    body = turns("/v1/responses", 40, 2, 1)
    assert http.post("/v1/responses", json=body).json()["error"]["code"] == "too_many_images"
    answer = http.post("/v1/responses", json={**body, "truncation": "auto"})
    assert answer.status_code == 200
    # Seven turns of two images and the last, each image of 4 tokens between brackets.
    assert answer.json()["usage"]["input_tokens"] > 15 * 6
    compacted = http.post("/v1/responses/compact", json={"model": MODEL, "input": body["input"]})
    assert compacted.status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_stored_is_refused_before_it_is_answered(few: Running, http: httpx.Client, stream: bool) -> None:
    before = few.stats.total_prompt_tokens
    chat, responses = chat_body("a", LARGE), responses_body("a", LARGE)
    conversation = http.post("/v1/conversations", json={}).json()["id"]
    for path, body, param in (
        ("/v1/chat/completions", {**chat, "store": True}, "messages"),
        ("/v1/responses", responses, "input"),
        ("/v1/responses", {**responses, "conversation": conversation, "store": False}, "input[0]"),
        ("/v1/conversations", {"items": responses["input"]}, "items[0]"),
        (f"/v1/conversations/{conversation}/items", {"items": responses["input"]}, "items[0]"),
    ):
        answer = http.post(path, json=body if "conversations" in path else {**body, "stream": stream})
        assert answer.status_code == 413, answer.text
        error = answer.json()["error"]
        assert error["param"] == param and ("store: false" in error["message"]) == (param in ("messages", "input"))
    assert few.stats.total_prompt_tokens == before
    assert http.post("/v1/chat/completions", json=chat).status_code == 200
    assert http.post("/v1/responses", json={**responses, "store": False}).status_code == 200
    assert http.post("/v1/messages", json=messages_body("a", LARGE)).status_code == 200


def test_answers_that_are_remembered_hold_no_images() -> None:
    """Those that could not be stored are told from memory. Eight such images may be held by all requests together."""
    config = Config(drain_seconds=0.2, max_image_pixels=32 * 32)
    with (
        closing(Store.open(None, limits=StoreLimits(max_bytes=3000))) as store,
        running(image_runner(), config, store=store) as live,
        live.http() as http,
    ):
        body = {**responses_body("a", red()), "max_output_tokens": 400, "ignore_eos": True}
        ids = []
        for _ in range(12):
            begun = http.post("/v1/responses", json={**body, "background": True})
            assert begun.status_code == 200, begun.text
            ids.append(begun.json()["id"])
            live.wait_idle()
        for id_ in ids:
            path = f"/v1/responses/{id_}"
            wait_until(lambda path=path: http.get(path).json()["status"] not in ("queued", "in_progress"))  # type: ignore[misc]
            shown = http.get(path).json()
            assert shown["error"]["message"].startswith("An object of more than 2 KiB")


def test_a_image_that_the_model_cannot_see_is_told_to_agents_in_their_words(http: httpx.Client) -> None:
    answer = http.post("/v1/messages", json=messages_body("a", data_url(plain(4000, 4000))))
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("Could not process image: Invalid value for 'messages[0]")
