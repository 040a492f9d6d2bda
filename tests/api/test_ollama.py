"""Ollama's API through its official Python client, over the fake model."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.formats import by_name
from proxy_inference_engine.runners.fake import IMAGE_TEMPLATE, MARKER, FakeImageEncoder, FakeRunner
from tests.api.running import HELLO, MODEL, Running, on_every_runner, running
from tests.api.writing import MARKERS, Writer, call
from tests.images import plain

ollama = pytest.importorskip("ollama")

SHORT = {"num_predict": 20, "temperature": 0, "seed": 1}
LONG = {**SHORT, "num_predict": 400}
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"enum": [1, 2, 3]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather.", "parameters": WEATHER}}


@contextmanager
def talking(live: Running, **options: Any) -> Iterator[Any]:
    with ollama.Client(host=live.url, **options) as client:
        yield client


@pytest.fixture
def client(server: Running) -> Iterator[Any]:
    with talking(server) as client:
        yield client


@pytest.fixture(scope="module")
def thinking() -> Iterator[Running]:
    with running(FakeRunner(chat_template=by_name("qwen3").template, defined_tokens=MARKERS)) as live:
        yield live
        live.wait_idle()


@on_every_runner
def test_a_chat(client: Any) -> None:
    answer = client.chat(MODEL, HELLO, options=SHORT)
    assert answer.model == MODEL and answer.done and answer.done_reason == "length"
    assert answer.message.role == "assistant" and answer.message.content
    assert answer.eval_count == 20 and answer.prompt_eval_count > 5
    assert answer.total_duration >= answer.eval_duration > 0 and answer.load_duration >= 0


@on_every_runner
def test_a_stream_is_the_whole(client: Any) -> None:
    whole = client.chat(MODEL, HELLO, options=SHORT)
    *parts, last = client.chat(MODEL, HELLO, options=SHORT, stream=True)
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert len(parts) > 3 and not any(part.done for part in parts)
    assert last.done and last.done_reason == "length" and last.message.content == ""
    assert (last.eval_count, last.prompt_eval_count) == (whole.eval_count, whole.prompt_eval_count)


@on_every_runner
def test_a_generation(client: Any) -> None:
    whole = client.generate(MODEL, "Hello", options=SHORT)
    assert whole.response and whole.done_reason == "length" and whole.eval_count == 20
    assert "".join(part.response for part in client.generate(MODEL, "Hello", options=SHORT, stream=True)) == (
        whole.response
    )
    asked = client.chat(MODEL, [{"role": "system", "content": "Be kind."}, *HELLO], options=SHORT)
    assert client.generate(MODEL, "Hello", system="Be kind.", options=SHORT).response == asked.message.content


def test_a_raw_prompt_is_taken_as_it_is(client: Any, server: Running) -> None:
    answer = client.generate(MODEL, "Hello", raw=True, options=SHORT)
    with server.openai() as openai:
        plain = openai.completions.create(model=MODEL, prompt="Hello", temperature=0, max_tokens=20)
    assert answer.response == plain.choices[0].text
    assert plain.usage is not None and answer.prompt_eval_count == plain.usage.prompt_tokens


@on_every_runner
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_schema_binds(client: Any, is_streamed: bool) -> None:
    found = client.chat(MODEL, HELLO, format=WEATHER, options=LONG, stream=is_streamed)
    text = "".join(part.message.content for part in found) if is_streamed else found.message.content
    assert set(json.loads(text)) == {"city", "days"}
    assert set(json.loads(client.generate(MODEL, "Hello", format=WEATHER, options=LONG).response)) == {"city", "days"}


@pytest.mark.parametrize("is_opened", [False, True])
def test_objects_have_what_they_list_unless_they_say_otherwise(is_opened: bool) -> None:
    said = {"city": "Paris", "days": 2, "more": 1}
    schema = {key: WEATHER[key] for key in ("type", "properties", "required")}
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": schema}}  # the client knows no more
    with running(Writer((json.dumps(said, separators=(",", ":")), call("get_weather", **said)))) as live:
        with talking(live) as client:
            format = schema | ({"additionalProperties": True} if is_opened else {})
            answer = client.chat(MODEL, HELLO, format=format, options=LONG)
            again = [*HELLO, {"role": "assistant", "content": "Well."}, *HELLO]
            called = client.chat(MODEL, again, tools=[tool], options=LONG).message.tool_calls[0]
        live.wait_idle()
    assert json.loads(answer.message.content).keys() == (said.keys() if is_opened else {"city", "days"})
    assert called.function.arguments.keys() == {"city", "days"}


def test_json_binds(server: Running) -> None:
    with running(Writer(('{"a":[1,2]}',))) as live, talking(live) as client:
        answer = client.chat(MODEL, HELLO, format="json", options=LONG)
        assert json.loads(answer.message.content) == {"a": [1, 2]}
        live.wait_idle()


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_loop_of_a_tool(is_streamed: bool) -> None:
    texts = (f"Let me look.\n{call('get_weather', city='Paris', days=2)}", "It is sunny.")
    with running(writer := Writer(texts)) as live, talking(live) as client:
        messages: list[Any] = [{"role": "user", "content": "How is it in Paris?"}]

        def ask() -> Any:
            found = client.chat(MODEL, messages, tools=[TOOL], options=LONG, stream=is_streamed)
            if not is_streamed:
                return found.message
            *parts, last = found
            assert last.done_reason == "stop"
            calls = [each for part in parts for each in part.message.tool_calls or ()]
            return ollama.Message(
                role="assistant", content="".join(part.message.content for part in parts), tool_calls=calls
            )

        said = ask()
        (called,) = said.tool_calls
        assert called.function.name == "get_weather" and called.function.arguments == {"city": "Paris", "days": 2}
        messages += [said, {"role": "tool", "tool_name": "get_weather", "content": "12 degrees"}]
        assert ask().content == "It is sunny."
        assert "Let me look." in writer.prompts[1] and "12 degrees" in writer.prompts[1]
        assert writer.prompts[1].startswith(writer.prompts[0])
        live.wait_idle()


def test_a_python_function_is_a_tool(server: Running) -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
          a: The first.
          b: The second.
        """
        return a + b

    with running(Writer((call("add", a=1, b=2),))) as live, talking(live) as client:
        answer = client.chat(MODEL, HELLO, tools=[add], options=LONG)
        (called,) = answer.message.tool_calls
        assert add(**called.function.arguments) == 3
        live.wait_idle()


def test_thinking(thinking: Running) -> None:
    options = {**SHORT, "num_predict": 60}
    with talking(thinking) as client:
        quiet = client.chat(MODEL, HELLO, think=False, options=SHORT)
        aloud = client.chat(MODEL, HELLO, think=True, options=options)
        folded = list(client.chat(MODEL, HELLO, think=True, options=options, stream=True))
    assert not quiet.message.thinking and quiet.message.content
    assert (aloud.message.thinking or "") == "".join(part.message.thinking or "" for part in folded)


def test_who_cannot_think_says_so(client: Any, server: Running) -> None:
    with pytest.raises(ollama.ResponseError, match=r"'think'.*reasoning") as found:
        client.chat(MODEL, HELLO, think=True, options=SHORT)
    assert found.value.status_code == 400
    with server.http() as http:
        answer = http.post("/api/chat", json={"messages": HELLO, "think": "high", "options": SHORT, "stream": False})
    assert answer.status_code == 200 and answer.headers["x-pie-ignored"] == "think"


def test_logprobs(client: Any) -> None:
    whole = client.chat(MODEL, HELLO, options=SHORT, logprobs=True, top_logprobs=2)
    assert len(whole.logprobs) > 10 and all(len(each.top_logprobs) == 2 for each in whole.logprobs)
    parts = client.chat(MODEL, HELLO, options=SHORT, logprobs=True, top_logprobs=2, stream=True)
    assert [each for part in parts for each in part.logprobs or ()] == list(whole.logprobs)


def test_stop_strings(client: Any) -> None:
    free = client.generate(MODEL, "Hello", options=SHORT).response
    stop = free[3:6]
    answer = client.generate(MODEL, "Hello", options={**SHORT, "stop": [stop]})
    assert answer.response == free[: free.index(stop)] and answer.done_reason == "stop"


def test_images_are_refused_by_a_model_that_sees_none(client: Any) -> None:
    image = plain(4, 4)
    with pytest.raises(ollama.ResponseError, match=r"messages\[0\].images\[0\].*takes no images"):
        client.chat(MODEL, [{"role": "user", "content": "What is it?", "images": [image]}])
    with pytest.raises(ollama.ResponseError, match=r"'images\[0\]'.*takes no images"):
        client.generate(MODEL, "What is it?", images=[image])


def test_images_are_seen() -> None:
    """32 by 32 is four patches between two brackets; which image it is changes the answer."""
    image_runner = FakeRunner(chat_template=IMAGE_TEMPLATE, defined_tokens=(MARKER,), image_encoder=FakeImageEncoder())
    with running(image_runner) as live, talking(live) as client:
        images = [[plain(32, 32)], [plain(32, 32, "blue")], []]
        asked = [{"role": "user", "content": "What is it?"}]
        chats = [client.chat(MODEL, [{**asked[0], "images": each}], options=SHORT) for each in images]
        shown = [client.generate(MODEL, "What is it?", images=each, options=SHORT) for each in images]
    for red, blue, none in (chats, shown):
        assert red.prompt_eval_count == blue.prompt_eval_count == none.prompt_eval_count + 6
    assert len({each.message.content for each in chats}) == 3
    assert [each.response for each in shown] == [each.message.content for each in chats]


@on_every_runner
def test_embeddings(client: Any) -> None:
    answer = client.embed(MODEL, ["Hello", "The sky"])
    assert len(answer.embeddings) == 2 and answer.prompt_eval_count > 2
    assert sum(value * value for value in answer.embeddings[0]) == pytest.approx(1, abs=1e-5)
    assert client.embed(MODEL, "Hello").embeddings[0] == pytest.approx(answer.embeddings[0], abs=1e-3)
    raw = client.embeddings(MODEL, "Hello").embedding
    length = sum(value * value for value in raw) ** 0.5
    assert [value / length for value in raw] == pytest.approx(answer.embeddings[0], abs=1e-3)
    assert len(client.embed(MODEL, "Hello", dimensions=2).embeddings[0]) == 2
    assert client.embed(MODEL, "").embeddings == [] and client.embeddings(MODEL, "").embedding == []


def test_a_long_text_is_cut_unless_that_is_forbidden(client: Any, server: Running) -> None:
    most = server.worker.embedding.max_tokens
    answer = client.embed(MODEL, "x" * 2 * most)
    assert answer.prompt_eval_count == most
    with pytest.raises(ollama.ResponseError, match="tokens") as found:
        client.embed(MODEL, "x" * 2 * most, truncate=False)
    assert found.value.status_code == 400


def test_what_is_told_of_the_models(client: Any, server: Running) -> None:
    (listed,) = client.list().models
    assert listed.model == MODEL and len(listed.digest) == 64 and listed.details.family == "fake"
    (loaded,) = client.ps().models
    assert loaded.model == MODEL and loaded.context_length == server.worker.context_tokens
    assert loaded.expires_at.year > listed.modified_at.year + 100
    shown = client.show(f"{MODEL}:latest")
    assert shown.modelinfo["fake.context_length"] == server.worker.context_tokens
    assert shown.capabilities == ["completion", "tools"] and "num_ctx" in shown.parameters


def test_the_name_may_have_a_tag(client: Any) -> None:
    answer = client.chat(f"{MODEL}:latest", HELLO, options=SHORT)
    assert answer.model == f"{MODEL}:latest" and answer.message.content
    with pytest.raises(ollama.ResponseError, match="does not exist") as found:
        client.chat(f"{MODEL}:7b", HELLO)
    assert found.value.status_code == 404


def test_models_come_and_go_with_the_configuration_alone(client: Any, tmp_path: Any) -> None:
    assert [each.status for each in client.pull(MODEL, stream=True)] == ["success"]
    assert client.pull(MODEL).status == "success"
    file = tmp_path / "a.gguf"
    file.write_bytes(b"GGUF")
    refused = {
        404: (lambda: client.pull("llama3.2"), lambda: list(client.pull("llama3.2", stream=True))),
        403: (lambda: client.delete(MODEL),),
        400: (
            lambda: client.create("mine", from_=MODEL),
            lambda: client.copy(MODEL, "mine"),
            lambda: client.push("me/mine"),
            lambda: client.create_blob(file),
        ),
    }
    for status, attempts in refused.items():
        for attempt in attempts:
            with pytest.raises(ollama.ResponseError) as found:
                attempt()
            assert found.value.status_code == status
            assert any(word in found.value.error for word in ("configuration", "operator"))


def test_keys(server: Running) -> None:
    key = "k" * 24
    with running(config=Config(drain_seconds=0.2, api_keys=(ApiKey("anna", key),))) as live:
        with talking(live) as stranger, pytest.raises(ollama.ResponseError, match="API key") as found:
            stranger.chat(MODEL, HELLO, options=SHORT)
        assert found.value.status_code == 401
        with talking(live, headers={"Authorization": f"Bearer {key}"}) as known:
            assert known.chat(MODEL, HELLO, options=SHORT).done


async def test_who_leaves_is_not_computed_for() -> None:
    with running() as live:
        async with ollama.AsyncClient(host=live.url) as client:
            parts = await client.chat(MODEL, HELLO, stream=True, options={"num_predict": -1})
            async for _ in parts:
                break
            await parts.aclose()
            live.wait_idle()
