"""Tiny models on MLX behind the real server, asked with the official clients: text, structure, tools and images."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

pytest.importorskip("mlx_vlm")

from anthropic import Anthropic

from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.mlx.runner import MlxRunner
from tests.api.running import MODEL, Running, running
from tests.api.test_images import APIS, cached_tokens, chat_body, messages_body, num_prompt_tokens, responses_body, said
from tests.images import blue, corners, data_url, file_of, plain, red
from tests.tiny.image_runners import IMAGE_FAMILIES, make_image_runner
from tests.tiny.runners import make_runner

LANES = (Lane(4, 512), Lane(1, 2048))
CACHE = 32 << 20
FOUR = data_url(file_of(corners(32, 32)))
TALL = data_url(plain(16, 64, "green"))
DRAWN = {"temperature": 1, "seed": 3}  # random weights like to repeat themselves
NUM_AROUND = {"gemma3": 4, "qwen3_vl": 2, "qwen3_vl_moe": 2}  # two newlines on each side; brackets of the template
SEEDED = [path for path in APIS if path != "/v1/messages"]
Json = dict[str, Any]


def body_for(path: str, *parts: str) -> Json:
    make, _ = APIS[path]
    return {**make(*parts), **(DRAWN if path in SEEDED else {})}


@pytest.fixture(scope="module", params=[False, True], ids=["waits", "defers"])
def reading(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    runner = make_runner("llama", tmp_path_factory.getbasetemp(), lanes=LANES, defers=request.param)
    runner.info = runner.info._replace(name=MODEL)
    with running(runner, max_cache_bytes=CACHE) as live:
        yield live
        live.wait_idle()


@pytest.fixture(scope="module", params=IMAGE_FAMILIES)
def image_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One family has its tokens chosen by the device."""
    defers = request.param == "gemma3"
    runner = make_image_runner(request.param, tmp_path_factory.mktemp(request.param), lanes=LANES, defers=defers)
    runner.info = runner.info._replace(name=MODEL)
    with running(runner, max_cache_bytes=CACHE) as live:
        yield live
        live.wait_idle()


@pytest.fixture
def http(image_server: Running) -> Iterator[httpx.Client]:
    with image_server.http() as client:
        yield client


# Text


def test_streamed_equals_whole(reading: Running) -> None:
    with reading.openai() as client:
        for fields in ({"temperature": 0}, {**DRAWN, "n": 2}, {**DRAWN, "logprobs": True, "top_logprobs": 2}):
            body: Json = {**chat_body("What is the capital of France?"), **fields}
            whole = client.chat.completions.create(**body)
            chunks = list(client.chat.completions.create(**body, stream=True))
            for choice in whole.choices:
                parts = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
                assert "".join(part.delta.content or "" for part in parts) == choice.message.content != ""
        assert whole.usage is not None and whole.usage.completion_tokens == 20


def test_many_clients_get_what_one_gets(reading: Running) -> None:
    wishes = [{**chat_body(f"Question {number}"), "temperature": 1, "seed": number} for number in range(6)]
    check_many_clients(reading, wishes)


def check_many_clients(running: Running, bodies: list[Json]) -> None:
    """Twelve at once hear what each hears alone, and nothing is held afterwards."""

    def ask(body: Json) -> str:
        with running.openai() as client:
            answer: str = client.chat.completions.create(**body).choices[0].message.content or ""
            return answer

    alone = [ask(body) for body in bodies]
    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, bodies * 2)) == alone * 2
    running.wait_idle()
    running.worker._engine.check()


def test_structured_output(reading: Running) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "trip", "schema": schema, "strict": True}}
    body: Json = {**chat_body("Where to?"), **DRAWN, "max_tokens": 200, "response_format": wanted}
    with reading.openai() as client:
        answer = client.chat.completions.create(**body)
    found = json.loads(answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    assert found["city"] in ("Paris", "Rome") and 1 <= found["days"] <= 9


def test_tools(reading: Running) -> None:
    parameters = {"type": "object", "properties": {"is_new": {"type": "boolean"}}, "required": ["is_new"]}
    tool = {"type": "function", "function": {"name": "note", "parameters": parameters, "strict": True}}
    body: Json = {**chat_body("Note it."), **DRAWN, "max_tokens": 200, "tools": [tool], "tool_choice": "required"}
    with reading.openai() as client:
        calls = client.chat.completions.create(**body, parallel_tool_calls=False).choices[0].message.tool_calls
    assert calls is not None and len(calls) == 1
    assert calls[0].type == "function" and calls[0].function.name == "note"
    assert isinstance(json.loads(calls[0].function.arguments)["is_new"], bool)


def test_embeddings(reading: Running) -> None:
    with reading.openai() as client:
        texts = ["The river", "the sea"]
        one, two = client.embeddings.create(model=MODEL, input=texts, encoding_format="float").data
    assert len(one.embedding) == len(two.embedding) == 64
    assert sum(value * value for value in one.embedding) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("path", APIS)
def test_a_model_without_images_says_so(reading: Running, path: str) -> None:
    _, param = APIS[path]
    with reading.http() as client:
        answer = client.post(path, json=body_for(path, "What is ", red()))
    assert answer.status_code == 400
    assert f"Invalid value for '{param}[1]': this model takes no images." in answer.json()["error"]["message"]


# Images


def num_image_tokens(live: Running, width: int, height: int) -> int:
    """Of the image itself and what its family puts around it."""
    assert isinstance(live.runner, MlxRunner) and live.runner.image_encoder is not None
    return len(live.runner.image_encoder.tokens(width, height).ids) + NUM_AROUND[live.runner.info.architecture]


@pytest.mark.parametrize("path", APIS)
def test_usage_counts_image_tokens(image_server: Running, http: httpx.Client, path: str) -> None:
    one, two, tall = (
        num_prompt_tokens(http.post(path, json=body_for(path, "Look:", *images, "what?")).json())
        for images in ([red()], [red(), blue()], [red(), TALL])
    )
    assert two - one == num_image_tokens(image_server, 32, 32)
    assert tall - one == num_image_tokens(image_server, 16, 64)


@pytest.mark.parametrize("path", SEEDED)
def test_images_are_read_in_order_with_the_text(http: httpx.Client, path: str) -> None:
    orders = [
        ["Look:", red(), "and", FOUR, "?"],
        ["Look:", FOUR, "and", red(), "?"],
        [red(), FOUR, "Look:", "and", "?"],
        ["Look:", red(), "and", blue(), "?"],
    ]
    answers = [http.post(path, json=body_for(path, *order)).json() for order in orders]
    assert len({said(path, answer) for answer in answers}) == 4


def test_all_apis_say_the_same(http: httpx.Client) -> None:
    parts = ("What is", FOUR, "?", blue(48, 20))
    answers = {
        path: http.post(path, json={**body(*parts), "temperature": 0}).json() for path, (body, _) in APIS.items()
    }
    assert len({said(path, answer) for path, answer in answers.items()}) == 1
    assert len({num_prompt_tokens(answer) for answer in answers.values()}) == 1


@pytest.mark.parametrize("path", APIS)
def test_equal_images_are_found_in_the_cache_and_others_are_not(
    image_server: Running, http: httpx.Client, path: str
) -> None:
    """Where memory can be cut; a snapshot is of a whole text, and another question is another text."""
    lead = f"Of {path}:"
    first, again, other = (
        http.post(path, json=body_for(path, lead, url, "what is it?")).json()
        for url in (red(40, 40), data_url(plain(40, 40), "image/webp"), blue(40, 40))
    )
    num_tokens = num_prompt_tokens(first)
    assert said(path, again) == said(path, first)
    assert num_prompt_tokens(other) == num_tokens
    assert cached_tokens(other) < num_tokens - num_image_tokens(image_server, 40, 40)
    if image_server.runner.can_splice:
        assert cached_tokens(again) == num_tokens - 1


def test_many_clients_with_images(image_server: Running) -> None:
    images = [red(), blue(), FOUR, TALL, red(60, 60), blue(24, 48)]
    bodies = [{**chat_body(f"{number}:", url, "?"), **DRAWN} for number, url in enumerate(images)]
    check_many_clients(image_server, bodies)


def test_official_clients(image_server: Running) -> None:
    with image_server.openai() as client:
        chat = {**chat_body("What is", FOUR, "?"), "temperature": 0}
        whole = client.chat.completions.create(**chat)
        pieces = client.chat.completions.create(**chat, stream=True)
        assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == whole.choices[0].message.content
        asked = responses_body("What is", FOUR, "?")
        response = client.responses.create(**asked)
        assert response.output_text == whole.choices[0].message.content
    body = messages_body("What is", FOUR, "?")
    del body["temperature"]
    with Anthropic(
        base_url=image_server.url, api_key="none", max_retries=0, _strict_response_validation=True
    ) as claude:
        message = claude.messages.create(**body, extra_body={"temperature": 0})
        counted = claude.messages.count_tokens(model=MODEL, messages=body["messages"])
    assert message.content[0].text == whole.choices[0].message.content  # type: ignore[union-attr]
    assert whole.usage is not None and counted.input_tokens == whole.usage.prompt_tokens
