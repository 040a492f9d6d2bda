"""Ollama's API as bytes: what its programs and its users' scripts send, and what they get line by line."""

import json
from typing import Any

import httpx
import pytest

from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.server.http.sse import Patience
from tests.api.running import HELLO, MODEL, Running, running
from tests.api.writing import Writer, call
from tests.clock import Clock
from tests.unit.engine.threads import Gate

SHORT = {"num_predict": 8, "temperature": 0}
CHAT: dict[str, Any] = {"model": MODEL, "messages": HELLO, "options": SHORT}
FORM = {"content-type": "application/x-www-form-urlencoded"}


def lines(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.text.endswith("\n")
    return [json.loads(line) for line in response.text.splitlines()]


def whole(http: httpx.Client, path: str = "/api/chat", **fields: Any) -> httpx.Response:
    return http.post(path, json={**CHAT, "stream": False, **fields})


@pytest.mark.parametrize("headers", [{}, FORM, {"content-type": "application/json; charset=utf-8"}])
def test_as_curl_sends_it(http: httpx.Client, headers: dict[str, str]) -> None:
    *parts, last = lines(http.post("/api/chat", content=json.dumps(CHAT), headers=headers))
    assert parts and all(set(part) == {"model", "created_at", "message", "done"} for part in parts)
    assert last["done"] and last["done_reason"] == "length" and last["message"] == {"role": "assistant", "content": ""}
    assert {"total_duration", "load_duration", "prompt_eval_duration", "eval_duration"} <= set(last)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "multipart/form-data"}, 415),
        ({**FORM, "origin": "http://evil.example"}, 403),
        ({**FORM, "sec-fetch-site": "cross-site"}, 403),
        ({"host": "evil.example"}, 403),
    ],
)
def test_no_page_of_another_site_gets_in(http: httpx.Client, headers: dict[str, str], status: int) -> None:
    answer = http.post("/api/generate", content=json.dumps({"model": MODEL, "prompt": "Hi"}), headers=headers)
    assert answer.status_code == status and isinstance(answer.json()["error"], str)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "/api/chat", {"messages": 1}, 400, "messages"),
        ("POST", "/api/chat", {"messages": [{"role": "king", "content": ""}]}, 400, "messages[0].role"),
        ("POST", "/api/chat", {**CHAT, "model": "other"}, 404, "other"),
        ("POST", "/api/chat", {**CHAT, "format": "yaml"}, 400, "format"),
        ("POST", "/api/chat", {**CHAT, "format": {"type": "nothing"}}, 400, "format"),
        ("POST", "/api/chat", {**CHAT, "think": "deeply"}, 400, "think"),
        ("POST", "/api/chat", {**CHAT, "keep_alive": "soon"}, 400, "keep_alive"),
        ("POST", "/api/chat", {**CHAT, "top_logprobs": 21}, 400, "top_logprobs"),
        ("POST", "/api/chat", {**CHAT, "options": {"temperature": "hot"}}, 400, "options.temperature"),
        ("POST", "/api/chat", {**CHAT, "options": {"num_predict": 1.5}}, 400, "options.num_predict"),
        ("POST", "/api/chat", {**CHAT, "tools": [{"function": {"name": "a b"}}]}, 400, "tools[0].function.name"),
        ("POST", "/api/chat", {**CHAT, "_debug_render_only": True}, 400, "_debug_render_only"),
        ("POST", "/api/generate", {"prompt": "x", "template": "{{ .Prompt }}"}, 400, "template"),
        ("POST", "/api/generate", {"prompt": "x", "context": [1, 2]}, 400, "context"),
        ("POST", "/api/generate", {"prompt": "x", "suffix": "y"}, 400, "suffix"),
        ("POST", "/api/generate", {"prompt": "x", "raw": True, "system": "y"}, 400, "system"),
        ("POST", "/api/generate", {"prompt": "x", "width": 512}, 400, "width"),
        ("POST", "/api/embed", {"input": [1]}, 400, "input"),
        ("POST", "/api/embed", {"input": "x", "dimensions": 10**6}, 400, "dimensions"),
        ("POST", "/api/show", {}, 400, "model"),
        ("POST", "/api/show", {"name": "other"}, 404, "other"),
        ("POST", "/api/create", {"model": "mine"}, 400, "/api/create"),
        ("POST", "/api/copy", {"source": MODEL}, 400, "/api/copy"),
        ("POST", "/api/push", {"model": MODEL}, 400, "/api/push"),
        ("DELETE", "/api/delete", {"model": MODEL}, 403, "operator"),
        ("DELETE", "/api/delete", {"name": "other"}, 404, "other"),
        ("GET", "/api/chat", None, 405, "method"),
        ("GET", "/api/nothing", None, 404, "path"),
    ],
)
def test_refusals_are_one_text(http: httpx.Client, method: str, path: str, body: Any, status: int, words: str) -> None:
    answer = http.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"} and words in answer.json()["error"]


def test_what_is_not_honoured_is_named(http: httpx.Client, server: Running) -> None:
    options = {**SHORT, "num_ctx": 10**6, "num_gpu": 99, "tfs_z": 0.7, "num_thread": 8, "strange": 1}
    answer = whole(http, options=options, keep_alive="10m", shift=True, extra=1)
    named = answer.headers["x-pie-ignored"].split(", ")
    assert set(named) == {
        "extra", "options.num_gpu", "options.tfs_z", "options.num_thread", "options.strange",
        "shift", "options.num_ctx", "keep_alive",
    }  # fmt: skip


def test_what_asks_for_nothing_is_no_lie(http: httpx.Client) -> None:
    options = {
        **SHORT, "num_ctx": 256, "num_gpu": -1, "mirostat": 0, "typical_p": 1.0, "tfs_z": 1, "numa": False,
        "seed": None, "stop": [""], "top_k": 40.0, "repeat_last_n": 64,
    }  # fmt: skip
    answer = whole(http, options=options, keep_alive=-1, format="", think=False, truncate=True)
    assert answer.status_code == 200 and "x-pie-ignored" not in answer.headers


def test_options_are_those_of_chat(http: httpx.Client) -> None:
    options = {
        "seed": 7, "temperature": 1.5, "top_k": 9, "top_p": 0.8, "min_p": 0.01, "repeat_penalty": 1.3,
        "repeat_last_n": 5, "presence_penalty": 0.5, "frequency_penalty": 0.25, "num_predict": 30, "typical_p": 0.9,
    }  # fmt: skip
    same = {
        "seed": 7, "temperature": 1.5, "top_k": 9, "top_p": 0.8, "min_p": 0.01, "repetition_penalty": 1.3,
        "repetition_window": 5, "presence_penalty": 0.5, "frequency_penalty": 0.25, "max_tokens": 30, "typical_p": 0.9,
    }  # fmt: skip
    chat = http.post("/v1/chat/completions", json={"model": MODEL, "messages": HELLO, **same}).json()
    assert whole(http, options=options).json()["message"]["content"] == chat["choices"][0]["message"]["content"]


def test_a_schema_binds_a_raw_prompt_too(http: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    body = {"model": MODEL, "prompt": "Hello", "raw": True, "format": schema, "stream": False}
    assert json.loads(http.post("/api/generate", json=body).json()["response"])["a"] in (1, 2)


@pytest.mark.parametrize(("keep_alive", "ignored"), [(None, None), (-1, None), (0, "keep_alive"), ("5m", "keep_alive")])
@pytest.mark.parametrize(("path", "said"), [("/api/chat", "message"), ("/api/generate", "response")])
def test_nothing_to_say_asks_for_the_model_only(
    http: httpx.Client, path: str, said: str, keep_alive: Any, ignored: str | None
) -> None:
    """It is loaded and stays so: who wants it gone is told that it is not."""
    answer = http.post(path, json={"model": MODEL, "keep_alive": keep_alive})
    body = answer.json()
    assert body["done"] and body["done_reason"] == "load" and said in body
    assert answer.headers.get("x-pie-ignored") == ignored


def test_probes(http: httpx.Client) -> None:
    for path in ("/", "/api/tags", "/api/version"):
        answer = http.head(path)
        assert answer.status_code == 200 and not answer.content
    assert http.head("/api/blobs/sha256:" + "0" * 64).status_code == 404
    assert http.get("/api/version").json()["version"].count(".") == 2


def test_an_answer_goes_on_where_the_last_message_ends(http: httpx.Client) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "Once upon"}]
    mine = whole(http, messages=messages).json()["message"]["content"]
    body = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 8, "continue_final_message": True}
    chat = http.post("/v1/chat/completions", json=body).json()
    assert mine == chat["choices"][0]["message"]["content"]


def test_results_find_their_calls() -> None:
    def called(name: str, **arguments: Any) -> dict[str, Any]:
        return {"function": {"name": name, "arguments": arguments}}

    messages = [
        *HELLO,
        {"role": "Assistant", "content": "", "tool_calls": [called("look", path="a"), called("look", path="b")]},
        {"role": "tool", "tool_name": "look", "content": "first"},
        {"role": "tool", "content": "second"},
        {"role": "tool", "name": "other", "content": "of nobody"},
    ]
    with running(writer := Writer(("", "Done."))) as live, live.http() as http:
        assert whole(http, messages=messages, options={}).json()["message"]["content"] == "Done."
        prompt = writer.prompts[0]
        assert prompt.index("first") < prompt.index("second") < prompt.index("of nobody")
        live.wait_idle()


def test_a_call_that_the_limit_cuts_off_is_not_made() -> None:
    tool = {"function": {"name": "look", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}}
    with running(Writer((call("look", path="x" * 100),))) as live, live.http() as http:
        answer = whole(http, tools=[tool], options={"num_predict": 60}).json()
        assert answer["done_reason"] == "length" and "tool_calls" not in answer["message"]
        last = lines(http.post("/api/chat", json={**CHAT, "tools": [tool], "options": {"num_predict": 60}}))[-1]
        assert last["done_reason"] == "length"
        live.wait_idle()


def test_silence_is_filled_with_spaces() -> None:
    """Between objects: an empty line would be read as one."""
    gate, patience, text = Gate(), Patience(first_ping_s=0.01, next_ping_s=0.01), ""
    with running(gate.runner(), patience=patience, clock=Clock()) as live, live.http() as http:
        with http.stream("POST", "/api/chat", json={**CHAT, "options": {"num_predict": 3}}) as answer:
            for chunk in answer.iter_text():
                text += chunk
                gate.open()  # something was said, and nothing computed yet
        assert text.startswith(" ") and " {" in text and "\n\n" not in text
        assert json.loads(text.splitlines()[-1])["done"]
        live.wait_idle()


def test_a_stream_that_breaks_says_so() -> None:
    def fail(rows: Any) -> None:
        if any(row.start > 40 for row in rows):
            raise RuntimeError("no")

    with running(FakeRunner(on_forward=fail)) as live, live.http() as http:
        found = lines(http.post("/api/chat", json={**CHAT, "options": {"num_predict": 400}}))
        assert set(found[-1]) == {"error"} and not any(part.get("done") for part in found)


def test_a_full_queue() -> None:
    with running(admission=Admission(max_waiting=-1000)) as live, live.http() as http:
        answer = http.post("/api/chat", json=CHAT)
        assert answer.status_code == 429 and "error" in answer.json() and answer.headers["retry-after"]


def test_all_that_does_not_fit_is_left_out_unless_that_is_forbidden(http: httpx.Client, server: Running) -> None:
    long = {"role": "user", "content": "x" * server.worker.context_tokens}
    messages = [long, {"role": "assistant", "content": "Yes."}, *HELLO]
    assert whole(http, messages=messages).status_code == 200
    answer = whole(http, messages=messages, truncate=False)
    assert answer.status_code == 400 and "context" in answer.json()["error"]
