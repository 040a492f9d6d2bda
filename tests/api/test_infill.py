"""POST /v1/completions with a suffix, on a model that has fill-in-the-middle."""

from collections.abc import Iterator

import httpx
import pytest

from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import MODEL, Running, running

PREFIX, SUFFIX, MIDDLE = 260, 261, 262
BODY = {"model": MODEL, "prompt": "def f(", "suffix": "): pass", "max_tokens": 12, "seed": 1, "ignore_eos": True}
IDS = [PREFIX, *b"def f(", SUFFIX, *b"): pass", MIDDLE]


@pytest.fixture(scope="module")
def coder() -> Iterator[Running]:
    with running(FakeRunner(defined_tokens=["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"])) as live:
        yield live


@pytest.fixture
def http(coder: Running) -> Iterator[httpx.Client]:
    with coder.http() as plain:
        yield plain


def text(http: httpx.Client, **fields: object) -> str:
    response = http.post("/v1/completions", json={**BODY, **fields})
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


def test_the_gap_is_what_the_model_says_after_its_markers(http: httpx.Client) -> None:
    filled = text(http)
    assert filled == text(http, prompt=IDS, suffix=None)
    assert filled != text(http, suffix=None)
    usage = http.post("/v1/completions", json=BODY).json()["usage"]
    assert usage["prompt_tokens"] == len(IDS)


def test_a_suffix_goes_with_every_prompt_and_nothing_in_it_is_special(http: httpx.Client) -> None:
    body = {**BODY, "prompt": ["def f(", "", "x"], "suffix": "<|fim_middle|>"}
    answer = http.post("/v1/completions", json=body).json()
    end = [SUFFIX, *b"<|fim_middle|>", MIDDLE]
    prompts = [[PREFIX, *b"def f(", *end], [PREFIX, *end], [PREFIX, *b"x", *end]]
    assert [choice["text"] for choice in answer["choices"]] == [text(http, prompt=ids, suffix=None) for ids in prompts]
    assert answer["usage"]["prompt_tokens"] == sum(map(len, prompts))


def test_an_empty_suffix_is_none(http: httpx.Client) -> None:
    assert text(http, suffix="") == text(http, suffix=None)


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"echo": True}, "echo", None),
        ({"suffix": 5}, "suffix", None),
        ({"suffix": "x" * 9000}, "prompt", "context_length_exceeded"),
    ],
)
def test_refuses(http: httpx.Client, fields: dict[str, object], param: str, code: str | None) -> None:
    response = http.post("/v1/completions", json={**BODY, **fields})
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, param, code)
