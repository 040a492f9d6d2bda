"""Images through the three APIs, with their official clients, over the fake model that takes some."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from anthropic import Anthropic

from proxy_inference_engine.config import Config
from proxy_inference_engine.runners.fake import IMAGE_TEMPLATE, MARKER, FakeImageEncoder, FakeRunner
from tests.api.running import MODEL, Running, running
from tests.api.test_leaving import send_request
from tests.images import blue, data_url, plain, png, red
from tests.polling import HANG_S, wait_until
from tests.unit.images.web import Web, redirect, reply

GREEDY = {"temperature": 0}
TALL = data_url(plain(16, 64, "green"))
Json = dict[str, Any]


def image_runner() -> FakeRunner:
    return FakeRunner(chat_template=IMAGE_TEMPLATE, defined_tokens=(MARKER,), image_encoder=FakeImageEncoder())


@pytest.fixture(scope="module")
def image_server() -> Iterator[Running]:
    with running(image_runner()) as live:
        yield live
        live.wait_idle()


@pytest.fixture
def http(image_server: Running) -> Iterator[httpx.Client]:
    with image_server.http() as plain_client:
        yield plain_client


# The same question in each API's own words: parts are texts or URLs.


def is_url(part: str) -> bool:
    return part.startswith(("data:", "http:", "https:", "file:"))


def chat_body(*parts: str) -> Json:
    content = [
        {"type": "image_url", "image_url": {"url": part, "detail": "low"}}
        if is_url(part)
        else {"type": "text", "text": part}
        for part in parts
    ]
    return {"model": MODEL, "max_tokens": 20, "messages": [{"role": "user", "content": content}], **GREEDY}


def responses_body(*parts: str) -> Json:
    content = [
        {"type": "input_image", "image_url": part, "detail": "auto"}
        if is_url(part)
        else {"type": "input_text", "text": part}
        for part in parts
    ]
    return {"model": MODEL, "max_output_tokens": 20, "input": [{"role": "user", "content": content}], **GREEDY}


def block(part: str) -> Json:
    if not is_url(part):
        return {"type": "text", "text": part}
    if not part.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": part}}
    media, _, data = part.removeprefix("data:").partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}


def messages_body(*parts: str) -> Json:
    content = [block(part) for part in parts]
    return {"model": MODEL, "max_tokens": 20, "messages": [{"role": "user", "content": content}], **GREEDY}


APIS = {
    "/v1/chat/completions": (chat_body, "messages[0].content"),
    "/v1/responses": (responses_body, "input[0].content"),
    "/v1/messages": (messages_body, "messages[0].content"),
}


def num_prompt_tokens(answer: Json) -> int:
    usage = answer["usage"]
    count: int = usage.get("prompt_tokens") or usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)
    return count


def said(path: str, answer: Json) -> str:
    match path:
        case "/v1/chat/completions":
            text: str = answer["choices"][0]["message"]["content"]
        case "/v1/responses":
            text = answer["output"][0]["content"][0]["text"]
        case _:
            text = answer["content"][0]["text"]
    return text


def cached_tokens(answer: Json) -> int:
    usage = answer["usage"]
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    count: int = details.get("cached_tokens", usage.get("cache_read_input_tokens", 0))
    return count


@pytest.mark.parametrize("path", APIS)
def test_images_are_read_in_order_with_the_text(http: httpx.Client, path: str) -> None:
    body, _ = APIS[path]
    orders = [
        ["Look: ", red(), " and ", blue(), "?"],
        ["Look: ", blue(), " and ", red(), "?"],
        [red(), blue(), "Look:  and ?"],
        ["Look: ", red(), " and ", TALL, "?"],
    ]
    answers = [http.post(path, json=body(*order)).json() for order in orders]
    # 32x32 is four patches and 16x64 too, each between two brackets.
    expected = num_prompt_tokens(http.post(path, json=body("Look:  and ?")).json()) + 2 * (4 + 2)
    assert [num_prompt_tokens(answer) for answer in answers] == [expected] * 4
    assert len({said(path, answer) for answer in answers}) == 4


def test_all_apis_say_the_same(http: httpx.Client) -> None:
    parts = ("What is ", red(48, 20), "?", blue())
    answers = {path: http.post(path, json=body(*parts)).json() for path, (body, _) in APIS.items()}
    assert len({said(path, answer) for path, answer in answers.items()}) == 1
    assert len({num_prompt_tokens(answer) for answer in answers.values()}) == 1


@pytest.mark.parametrize("path", APIS)
def test_equal_images_are_found_in_the_cache_and_others_are_not(http: httpx.Client, path: str) -> None:
    body, _ = APIS[path]
    lead = f"Of {path}: "
    first, again, other = (
        http.post(path, json=body(lead, url, " what is it?")).json()
        for url in (red(40, 40), data_url(plain(40, 40), "image/webp"), blue(40, 40))
    )
    num_tokens = num_prompt_tokens(first)
    assert cached_tokens(again) == num_tokens - 1 and said(path, again) == said(path, first)
    assert cached_tokens(other) <= len(f"<user\n{lead}[") and said(path, other) != said(path, first)


def test_chat_with_the_official_client(image_server: Running) -> None:
    with image_server.openai() as client:
        body = chat_body("What is ", red(), "?")
        whole = client.chat.completions.create(**body)
        pieces = list(client.chat.completions.create(**body, stream=True))
        text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
        assert text == whole.choices[0].message.content != ""


def test_responses_with_the_official_client(image_server: Running) -> None:
    with image_server.openai() as client:
        body = responses_body("What is ", red(), "?")
        whole = client.responses.create(**body)
        events = client.responses.create(**body, stream=True)
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert text == whole.output_text != ""
        counted = client.responses.input_tokens.count(model=MODEL, input=body["input"])
        assert whole.usage is not None and counted.input_tokens == whole.usage.input_tokens


def test_messages_with_the_official_client(image_server: Running) -> None:
    client = Anthropic(base_url=image_server.url, api_key="none", max_retries=0, _strict_response_validation=True)
    with client:
        body = messages_body("What is ", red(), "?")
        del body["temperature"]
        whole = client.messages.create(**body, extra_body=GREEDY)
        with client.messages.stream(**body, extra_body=GREEDY) as events:
            assert "".join(events.text_stream) == whole.content[0].text  # type: ignore[union-attr]
        counted = client.messages.count_tokens(model=MODEL, messages=body["messages"])
        assert counted.input_tokens == num_prompt_tokens(whole.to_dict())


def test_results_of_tools_may_have_images(http: httpx.Client) -> None:
    """In each API; the image stands where the result does."""
    call = {"type": "function", "id": "call_1", "function": {"name": "look", "arguments": "{}"}}
    chat = chat_body("Look")
    seen = chat_body("see ", red())["messages"][0]["content"]
    chat["messages"] += [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": seen},
    ]
    responses = responses_body("Look")
    responses["input"] += [
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": responses_body("see ", red())["input"][0]["content"],
        },
    ]
    messages = messages_body("Look")
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": [block("see "), block(red())]}
    messages["messages"] += [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "look", "input": {}}]},
        {"role": "user", "content": [result]},
    ]
    answers = {
        path: http.post(path, json=body).json() for path, body in zip(APIS, (chat, responses, messages), strict=True)
    }
    assert len({num_prompt_tokens(answer) for answer in answers.values()}) == 1, answers
    assert len({said(path, answer) for path, answer in answers.items()}) == 1


# What is refused


def part_paths() -> list[tuple[str, str]]:
    return [(path, f"{param}[1]") for path, (_, param) in APIS.items()]


def refused(client: httpx.Client, path: str, *parts: str) -> Json:
    body, _ = APIS[path]
    # What is too large to be stored is refused for that first.
    unstored = {"store": False} if path == "/v1/responses" else {}
    response = client.post(path, json={**body(*parts), **unstored})
    assert response.status_code == 400, response.text
    error: Json = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    return error


@pytest.mark.parametrize(("path", "param"), part_paths())
def test_a_model_without_images_says_so_before_anything_is_fetched(server: Running, path: str, param: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as canary, server.http() as client:
        canary.settimeout(0.05)
        url = f"http://127.0.0.1:{canary.getsockname()[1]}/a.png"
        for image in (red(), url, "https://example.com/a.png", "data:image/png;base64,!"):
            error = refused(client, path, "What is ", image)
            assert f"Invalid value for '{param}': this model takes no images." in error["message"]
            assert path == "/v1/messages" or (error["param"], error["code"]) == (param, "unsupported_content")
        with pytest.raises(TimeoutError):
            canary.accept()


BAD = [
    (data_url(b"nothing"), "neither PNG nor JPEG", "invalid_image"),
    ("data:image/png;base64,a", "base64 is not valid", "invalid_image_url"),
    (data_url(bytes(11 * 1024 * 1024)), "more than 10485760 bytes", "invalid_image"),
    (data_url(png(65535, 65535, b"")), "4294836225 pixels", "invalid_image"),
    (data_url(plain(4, 4, kind="TIFF")), "neither PNG nor JPEG", "invalid_image"),
    (data_url(plain(64, 64)[:-40]), "damaged or incomplete", "invalid_image"),
    (data_url(plain(4000, 4000)), "too large for this model", "invalid_image"),
    ("http://127.0.0.1/a.png", "cannot be asked", "url_not_allowed"),
    ("http://169.254.169.254/latest/meta-data/", "cannot be asked", "url_not_allowed"),
    ("http://localhost:8000/v1/models", "cannot be asked", "url_not_allowed"),
    ("http://[::ffff:127.0.0.1]/", "cannot be asked", "url_not_allowed"),
    ("file:///etc/passwd", "http or https", "invalid_image_url"),
    ("http://u:p@example.com/", "http or https", "invalid_image_url"),
]


@pytest.mark.parametrize(("url", "reason", "code"), BAD, ids=range(len(BAD)))
@pytest.mark.parametrize(("path", "param"), part_paths())
def test_bad_images_are_refused_by_name(
    http: httpx.Client, path: str, param: str, url: str, reason: str, code: str
) -> None:
    error = refused(http, path, "What is ", url, " and ", red())
    assert f"Invalid value for '{param}': " in error["message"] and reason in error["message"]
    assert path == "/v1/messages" or (error["param"], error["code"]) == (param, code)
    assert "aGVsbG8" not in error["message"] and len(error["message"]) < 300


@pytest.mark.parametrize(("path", "param"), part_paths())
def test_too_many_images_are_refused_before_any_is_loaded(http: httpx.Client, path: str, param: str) -> None:
    """D10."""
    error = refused(http, path, "What is ", *["http://127.0.0.1/"] * 1000)
    assert param.replace("[1]", "[17]") in error["message"] and "at most 16 images" in error["message"]


def test_what_each_format_cannot_say(http: httpx.Client) -> None:
    body = responses_body()
    body["input"][0]["content"] = [{"type": "input_image", "file_id": "file-1", "detail": "auto"}]
    error = http.post("/v1/responses", json=body).json()["error"]
    assert error["param"] == "input[0].content[0].file_id" and error["code"] == "unsupported_parameter"
    body["input"][0] = {"role": "assistant", "content": [{"type": "input_image", "image_url": red()}]}
    assert http.post("/v1/responses", json=body).json()["error"]["param"] == "input[0].content"


def test_a_batch_names_the_conversation(http: httpx.Client) -> None:
    good, bad = chat_body("a", red())["messages"], chat_body("a", "data:x")["messages"]
    answer = http.post("/v1/chat/completions", json={**chat_body(), "messages": [good, [*good, *bad]]})
    assert answer.json()["error"]["param"] == "messages[1][1].content[1]"
    answer = http.post("/v1/chat/completions", json={**chat_body(), "messages": [good, chat_body("a")["messages"]]})
    assert len(answer.json()["choices"]) == 2
    large = chat_body("a", data_url(plain(4000, 4000)))["messages"]
    answer = http.post("/v1/chat/completions", json={**chat_body(), "messages": [good, large]})
    assert answer.json()["error"]["param"] == "messages[1][0].content[1]"


def test_an_image_counts_for_the_context(http: httpx.Client) -> None:
    parts = [data_url(plain(256, 512 - number)) for number in range(16)]
    error = http.post("/v1/chat/completions", json=chat_body("a" * 1000, *parts)).json()["error"]
    assert error["code"] == "context_length_exceeded" and "prompt has 92" in error["message"]


# D12, D13: text is text


def test_text_that_looks_like_an_image_is_text(http: httpx.Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as canary:
        canary.settimeout(0.05)
        text = f"![](http://127.0.0.1:{canary.getsockname()[1]}/) {MARKER} {red()[:60]}"
        for path, (body, _) in APIS.items():
            plain_text = http.post(path, json=body("x" * len(text))).json()
            marked = http.post(path, json=body(f" {text}"[1:])).json()
            assert num_prompt_tokens(marked) == num_prompt_tokens(plain_text)
        with pytest.raises(TimeoutError):
            canary.accept()


def test_tokens_of_a_chat_with_images(http: httpx.Client) -> None:
    body = chat_body("a", red(), "b")
    counted = http.post("/tokenize", json={"messages": body["messages"]}).json()
    assert counted["count"] == num_prompt_tokens(http.post("/v1/chat/completions", json=body).json())
    text = http.post("/apply-template", json={"messages": body["messages"]}).json()["prompt"]
    assert text == f"<|im_start|>user\na{MARKER}b<|im_end|>\n<|im_start|>assistant\n"


# What is kept


def test_a_stored_chat_keeps_its_images(image_server: Running) -> None:
    with image_server.openai(is_strict=False) as client:  # its types know answers only
        body = chat_body("What is ", red(), "?")
        made = client.chat.completions.create(**body, store=True)
        stored = client.chat.completions.messages.list(made.id)
        parts = stored.data[0].to_dict()["content_parts"]
        assert parts == body["messages"][0]["content"]


def test_a_stored_response_keeps_its_images_and_goes_on_with_them(image_server: Running) -> None:
    with image_server.openai() as client:
        body = responses_body("What is ", red(), "?")
        first = client.responses.create(**body)
        items = client.responses.input_items.list(first.id).data
        assert items[0].to_dict()["content"] == body["input"][0]["content"]
        ask: Json = {"model": MODEL, "input": "And now?", "max_output_tokens": 20, **GREEDY}
        second = client.responses.create(**ask, previous_response_id=first.id)
        assert second.usage is not None and first.usage is not None
        assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens
        conversation = client.conversations.create(items=body["input"])
        third = client.responses.create(**ask, conversation=conversation.id)
        assert third.usage is not None and third.usage.input_tokens_details.cached_tokens > 4


def test_a_stored_image_that_cannot_be_had_any_more_is_named(image_server: Running, http: httpx.Client) -> None:
    made = http.post("/v1/conversations", json={"items": responses_body("a", "http://127.0.0.1/")["input"]}).json()
    body = {"model": MODEL, "input": "And now?", "conversation": made["id"]}
    error = http.post("/v1/responses", json=body).json()["error"]
    assert error["param"] == "input" and error["code"] == "url_not_allowed"


# Remote images, over real connections


class Site(Web):
    """The web of the unit tests, on a thread of its own."""

    def __enter__(self) -> "Site":
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.__aenter__(), self._loop).result(HANG_S)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self.__aexit__(), self._loop).result(HANG_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG_S)
        self._loop.close()


def test_remote_images(http: httpx.Client) -> None:
    async def silent(_path: str, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    pages: dict[str, Any] = {
        "/a.png": reply(plain(32, 32)),
        "/there": redirect("/a.png"),
        "/away": redirect("http://localhost:1/a.png"),
        "/page": reply(b"<html>", media="text/html"),
        "/silent": silent,
    }
    with Site(pages) as site:
        host = f"127.0.0.1:{site.port}"
        config = Config(drain_seconds=0.2, fetch_allow=host, image_timeout_seconds=HANG_S)  # type: ignore[arg-type]  # parsed
        with running(image_runner(), config) as live, live.http() as client:
            for path, (body, param) in APIS.items():
                expected = said(path, client.post(path, json=body("What is ", red())).json())
                for name in ("a.png", "there"):
                    answer = client.post(path, json=body("What is ", f"http://{host}/{name}"))
                    assert said(path, answer.json()) == expected
                for name in ("away", "page", "none"):
                    error = refused(client, path, "What is ", f"http://{host}/{name}")
                    assert f"'{param}[1]'" in error["message"]
        hasty = Config(drain_seconds=0.2, fetch_allow=host, image_timeout_seconds=0.3)  # type: ignore[arg-type]  # parsed
        with running(image_runner(), hasty) as live, live.http() as client:
            for path, (_, param) in APIS.items():
                assert f"'{param}[1]'" in refused(client, path, "What is ", f"http://{host}/silent")["message"]
        closed = Config(drain_seconds=0.2, fetch_allow=host, fetch_images=False)  # type: ignore[arg-type]  # parsed
        with running(image_runner(), closed) as live, live.http() as client:
            num_asked = len(site.heads)
            assert "fetches no images" in refused(client, "/v1/responses", "a", f"http://{host}/a.png")["message"]
            assert client.post("/v1/responses", json=responses_body("a", red())).status_code == 200
            assert len(site.heads) == num_asked


def test_a_client_that_leaves_stops_the_fetch(image_server: Running) -> None:
    closed = threading.Event()

    async def waiting(_path: str, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing():
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                await writer.drain()
                await asyncio.sleep(0.02)
        finally:
            closed.set()

    with Site({"/a.png": waiting}) as site:
        config = Config(drain_seconds=0.2, fetch_allow=f"127.0.0.1:{site.port}")  # type: ignore[arg-type]  # parsed
        with running(image_runner(), config) as live:
            url = f"http://127.0.0.1:{site.port}/a.png"
            with send_request(live, "/v1/chat/completions", chat_body("a", url)):
                wait_until(lambda: site.heads)
            assert closed.wait(HANG_S)
            live.wait_idle()
