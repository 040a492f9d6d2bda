"""The error contract, over every endpoint that takes a body. Any 5xx here is a failure."""

import json
from typing import Any

import httpx
import pytest

from tests.api.running import HELLO, MODEL, on_every_runner

CHAT: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 4}
TEXT: dict[str, Any] = {"model": MODEL, "prompt": "Once", "max_tokens": 4}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": TEXT,
    "/v1/embeddings": {"model": MODEL, "input": "Once"},
    "/v1/rerank": {"model": MODEL, "query": "Once", "documents": ["upon"]},
    "/tokenize": {"prompt": "Once"},
    "/detokenize": {"tokens": [65]},
    "/apply-template": {"messages": HELLO},
}
GENERATING = ["/v1/chat/completions", "/v1/completions"]
WITH_MESSAGES = ["/v1/chat/completions", "/tokenize", "/apply-template"]
HUGE = "1" + "0" * 5000
NUMBERS = ["NaN", "Infinity", "-Infinity", "1e400", '"1"', "true", "[]"]
DEEP = 10**5


def check(response: httpx.Response, status: int = 400) -> dict[str, Any]:
    """The contract of every error; returns the error object."""
    assert response.status_code == status, response.text[:300]
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    body = response.json()
    assert set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
    error: dict[str, Any] = body["error"]
    assert isinstance(error["message"], str) and 0 < len(error["message"]) < 400
    assert error["code"] is None or isinstance(error["code"], str)
    assert "Traceback" not in error["message"] and "/home" not in error["message"]
    return error


def post_raw(http: httpx.Client, path: str, text: str | bytes) -> httpx.Response:
    return http.post(path, content=text, headers={"content-type": "application/json"})


def with_raw_value(body: dict[str, Any], param: str, raw: str) -> str:
    """The body with a value that json.dumps would not write."""
    return json.dumps({**body, param: "@@"}).replace('"@@"', raw)


E1 = [(name, raw) for name in ("temperature", "top_p", "frequency_penalty", "presence_penalty") for raw in NUMBERS]
E2 = [("n", raw) for raw in ("0", "-1", "1000000000", "9223372036854775808", HUGE, "1.5", '"1"', "true")]
E3 = [("max_tokens", raw) for raw in ("1.5", HUGE)] + [("min_tokens", "5")]
BIASES = ('{"-1":1}', '{"260":1}', '{"1099511627776":1}', '{"abc":1}', '{"5":1e9}', '{"5":NaN}')
E4 = [("logit_bias", raw) for raw in BIASES]
E4 += [("logit_bias", json.dumps({str(number): 1 for number in range(10**5)}))]
E5 = [("logprobs", "1000000")]
E6 = [("stop", raw) for raw in ("5", "[5]", json.dumps(["x"] * 10**5), json.dumps("x" * 10**6))]
E7 = [("seed", raw) for raw in ("18446744073709551616", "1.5")]
E12 = [("unheard_of", "1"), ("cache_salt", '"x"'), ("chat_template", '"{{ x }}"')]
E14 = [("stream_options", '{"include_usage":true}'), ("stream", '"yes"')]
E15 = [("best_of", "1000000"), ("best_of", "0"), ("best_of", "21")]
E16 = [("user", json.dumps("x" * 10**6)), ("metadata", json.dumps({str(number): "x" for number in range(10**4)}))]
BOTH = [*E1, *E2, *E3, *E4, *E5, *E6, *E7, *E12, *E14, *E15, *E16]


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize(("param", "raw"), BOTH, ids=lambda value: str(value)[:20])
def test_parameters_are_refused_by_name(http: httpx.Client, path: str, param: str, raw: str) -> None:
    error = check(post_raw(http, path, with_raw_value(BODIES[path], param, raw)))
    assert error["type"] == "invalid_request_error"
    assert error["param"] is not None and error["param"].startswith(param)


CHAT_ONLY = [
    ("top_logprobs", "1000000"), ("top_logprobs", "5"), ("echo", "true"), ("suffix", '"x"'), ("max_tokens", "0"),
    ("max_completion_tokens", "5"), ("chat_template_kwargs", "[1]"), ("tools", "{}"),
    ("response_format", '{"type":"xml"}'), ("reasoning_effort", '"huge"'), ("store", "1"),
    ("continue_final_message", "true"), ("prediction", '{"type":"content"}'),
]  # fmt: skip


@pytest.mark.parametrize(("param", "raw"), CHAT_ONLY)
def test_chat_parameters_are_refused_by_name(http: httpx.Client, param: str, raw: str) -> None:
    error = check(post_raw(http, "/v1/chat/completions", with_raw_value(CHAT, param, raw)))
    assert error["param"] in (param, "max_tokens", f"{param}.content")


@pytest.mark.parametrize(
    ("fields", "ignored"),
    [
        ({"chat_template_kwargs": {"tokenize": True}}, "chat_template_kwargs.tokenize"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
    ],
)
def test_what_this_model_has_no_use_for_is_skipped_and_named(
    http: httpx.Client, fields: dict[str, Any], ignored: str
) -> None:
    answer = http.post("/v1/chat/completions", json={**CHAT, "max_tokens": 1, **fields})
    assert (answer.status_code, answer.headers["x-pie-ignored"]) == (200, ignored)


E8 = [
    "[]", "null", "5", '[{"role":"root","content":"x"}]', '[{"role":"user","content":null}]',
    '[{"role":"user","content":5}]', '[{"role":"user","content":[]}]', '[{"role":"tool","content":"x"}]',
    json.dumps(HELLO * 10_000), '[{"role":"user","content":"x","name":"' + "n" * 10**6 + '"}]',
    '[{"role":"user","content":"\\ud800"}]',
]  # fmt: skip


@on_every_runner
@pytest.mark.parametrize("path", WITH_MESSAGES)
@pytest.mark.parametrize("raw", E8, ids=lambda raw: raw[:40])
def test_messages_are_refused_by_place(http: httpx.Client, path: str, raw: str) -> None:
    body = {key: value for key, value in BODIES[path].items() if key != "prompt"}
    error = check(post_raw(http, path, with_raw_value(body, "messages", raw)))
    assert error["param"].startswith("messages")


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    "model",
    ["../../etc/passwd", "a/../../b", "/etc/passwd", "a\0b", "x" * 10_000, "https://a.b/c", "C:\\x", "fake\n"],
)
def test_other_models_do_not_exist(http: httpx.Client, path: str, model: str) -> None:
    error = check(http.post(path, json={**BODIES[path], "model": model}), 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")


@pytest.mark.parametrize("path", GENERATING)
def test_the_only_model_need_not_be_named(http: httpx.Client, path: str) -> None:
    body = {key: value for key, value in BODIES[path].items() if key != "model"}
    for unnamed in (body, {**body, "model": None}, {**body, "model": ""}):
        assert http.post(path, json=unnamed).json()["model"] == MODEL


E11: list[bytes] = [
    b"", b"{", b"nul", b"[" * DEEP, b'{"a":' * DEEP, b'{"model":"fake","model":"fake"}', b"{} x", b"\xef\xbb\xbf{}",
    b'{"model":"\xff"}', '{"model":"fake"}'.encode("utf-16"), b'"text"', b"[]", b"5", b"null",
    b'{"x":' + HUGE.encode() + b"}",
]  # fmt: skip


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("body", E11, ids=lambda body: body[:16].decode("latin-1"))
def test_bodies_are_strict_json(http: httpx.Client, path: str, body: bytes) -> None:
    check(post_raw(http, path, body))


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_only_plain_json_is_read(http: httpx.Client, path: str, headers: dict[str, str]) -> None:
    check(http.post(path, content=json.dumps(BODIES[path]), headers=headers), 415)


@pytest.mark.parametrize("path", BODIES)
def test_a_body_has_a_limit(http: httpx.Client, path: str) -> None:
    error = check(http.post(path, content=b" " * (33 * 1024**2), headers={"content-type": "application/json"}), 413)
    assert error["code"] == "request_too_large"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("PUT", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/health", 405),
        ("BREW", "/health", 400),
        ("GET", "/v1//models", 404),
        ("GET", "/V1/models", 404),
        ("GET", "/v1/models/other", 404),
        ("GET", "/v1/audio/speech", 404),
    ],
)
def test_paths_and_methods(http: httpx.Client, method: str, path: str, status: int) -> None:
    response = http.request(method, path)
    assert response.status_code == status
    if method != "BREW":  # the parser knows no such method, so there is no request yet
        check(response, status)


def test_request_ids_are_echoed_or_replaced(http: httpx.Client) -> None:
    for wanted, is_echoed in (("abc-1.2_3", True), ("x" * 129, False), ("a b", False), ("a/b", False)):
        got = http.get("/health", headers={"x-request-id": wanted}).headers["x-request-id"]
        assert (got == wanted) == is_echoed and len(got) <= 128
    error = http.get("/nothing", headers={"x-request-id": "mine"})
    assert error.headers["x-request-id"] == "mine"


@on_every_runner
def test_after_all_this_the_server_answers(http: httpx.Client) -> None:
    assert http.get("/health").json() == {"status": "ok"}
    assert http.post("/v1/chat/completions", json=CHAT).status_code == 200
