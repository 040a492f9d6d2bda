"""llama.cpp's own routes, with the bodies that its clients and its server's tests send."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import OpenAI

from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import HELLO, MODEL, Running, running

PROMPT = "I believe the meaning of life is"
GBNF = 'root ::= answer ("," answer)?\nanswer ::= "yes" | "no"'
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}


def complete(http: httpx.Client, path: str = "/completion", **fields: Any) -> dict[str, Any]:
    response = http.post(path, json={"prompt": PROMPT, "n_predict": 8, "seed": 42, **fields})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_a_completion(http: httpx.Client) -> None:
    """The body of its own tests: no model, `n_predict`, and `cache_prompt` at its default."""
    answer = complete(http, cache_prompt=True)
    assert answer["stop"] is True and answer["model"] == MODEL and answer["prompt"] == PROMPT
    assert (answer["stop_type"], answer["tokens_predicted"], answer["truncated"]) == ("limit", 8, False)
    assert answer["tokens_evaluated"] == len(PROMPT)
    assert answer["generation_settings"]["n_predict"] == 8 and answer["generation_settings"]["seed"] == 42
    timings = answer["timings"]
    assert timings["prompt_n"] + timings["cache_n"] == len(PROMPT) and timings["predicted_n"] == 8
    assert complete(http, "/completions")["content"] == answer["content"]
    completed = http.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 8, "seed": 42}).json()
    assert completed["choices"][0]["text"] == answer["content"]


def test_a_stream_ends_with_what_it_was(http: httpx.Client) -> None:
    whole = complete(http)
    response = http.post("/completion", json={"prompt": PROMPT, "n_predict": 8, "seed": 42, "stream": True})
    pieces = [json.loads(line[6:]) for line in response.text.split("\n\n") if line.startswith("data: ")]
    assert "".join(piece["content"] for piece in pieces) == whole["content"]
    assert [piece["stop"] for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert pieces[-1]["stop_type"] == "limit" and "[DONE]" not in response.text


def test_several_prompts_and_ids(http: httpx.Client) -> None:
    response = http.post("/completion", json={"prompt": [PROMPT, list(PROMPT.encode())], "n_predict": 4, "seed": 1})
    first, second = response.json()
    assert first["content"] == second["content"] and [first["index"], second["index"]] == [0, 1]


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({"grammar": GBNF}, {"yes", "no", "yes,yes", "yes,no", "no,yes", "no,no"}),
        ({"json_schema": SCHEMA}, {'{"a":1}', '{"a":2}'}),
    ],
)
def test_grammars_bind_raw_prompts(http: httpx.Client, fields: dict[str, Any], allowed: set[str]) -> None:
    for seed in range(3):
        assert complete(http, **fields, n_predict=-1, seed=seed)["content"] in allowed


def test_a_grammar_that_is_malformed_is_refused_with_its_line(http: httpx.Client) -> None:
    response = http.post("/completion", json={"prompt": PROMPT, "grammar": 'root ::= a\na ::= "x" )'})
    error = response.json()["error"]
    assert response.status_code == 400 and error["param"] == "grammar" and "line 2" in error["message"]


def test_probabilities(http: httpx.Client) -> None:
    answer = complete(http, n_probs=3)
    assert len(answer["completion_probabilities"]) == 8
    assert all(len(entry["top_logprobs"]) == 3 for entry in answer["completion_probabilities"])


def test_only_the_fields_that_are_wanted(http: httpx.Client) -> None:
    answer = complete(http, response_fields=["content", "generation_settings/n_predict"])
    assert answer == {"content": answer["content"], "n_predict": 8}


def test_a_stop_word_and_a_random_seed(http: httpx.Client) -> None:
    answer = complete(http, stop=[" "], n_predict=200, logit_bias=[[32, 100]])
    assert (answer["stop_type"], answer["stopping_word"], answer["content"]) == ("word", " ", "")
    drawn = [complete(http, seed=-1, n_predict=32, ignore_eos=True)["content"] for _ in range(2)]
    assert drawn[0] != drawn[1]


def test_the_best_of_one_is_the_only_one(http: httpx.Client) -> None:
    assert complete(http, best_of=1)["content"] == complete(http)["content"]
    assert http.post("/completion", json={"prompt": PROMPT, "best_of": 2}).json()["error"]["param"] == "best_of"


def test_what_has_no_meaning_here_is_named(http: httpx.Client) -> None:
    body = {"prompt": PROMPT, "n_predict": 2, "id_slot": 0, "samplers": ["top_k"], "mirostat": 0, "lora": []}
    assert http.post("/completion", json=body).headers["x-pie-ignored"] == "id_slot, samplers"


@pytest.fixture(scope="module")
def coder() -> Iterator[Running]:
    with running(FakeRunner(defined_tokens=["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"])) as live:
        yield live


def test_infill(coder: Running, http: httpx.Client) -> None:
    body = {"input_prefix": "def f(", "input_suffix": "): pass", "n_predict": 6, "seed": 1, "ignore_eos": True}
    with coder.http() as coding:
        filled = coding.post("/infill", json=body).json()
        same = {"prompt": "def f(", "suffix": "): pass", "max_tokens": 6, "seed": 1, "ignore_eos": True}
        assert filled["content"] == coding.post("/v1/completions", json=same).json()["choices"][0]["text"]
        begun = coding.post("/infill", json={**body, "prompt": "x"}).json()
        assert begun["tokens_evaluated"] == filled["tokens_evaluated"] + 1
        extra = [{"filename": "a.py", "text": "b"}]
        beside = coding.post("/infill", json={**body, "input_extra": extra}).json()
        assert beside["tokens_evaluated"] == filled["tokens_evaluated"] + len("a.py\nb\n")
    refused = http.post("/infill", json=body)
    assert refused.status_code == 400 and refused.json()["error"]["code"] == "unsupported_parameter"


def test_embeddings_in_both_forms(http: httpx.Client) -> None:
    native = http.post("/embedding", json={"content": ["one", "two"]}).json()
    assert [entry["index"] for entry in native] == [0, 1]
    (vector,) = native[0]["embedding"]
    (same,) = http.post("/embeddings", json={"content": "one"}).json()[0]["embedding"]
    (again,) = http.post("/embeddings", json={"input": "one", "encoding_format": "float"}).json()[0]["embedding"]
    assert vector == same == again and len(vector) == len(
        http.post("/v1/embeddings", json={"input": "one"}).json()["data"][0]["embedding"]
    )


def test_what_it_tells_of_itself(http: httpx.Client) -> None:
    props = http.get("/props").json()
    assert props["total_slots"] == len(http.get("/slots").json()) > 0
    assert props["default_generation_settings"]["n_ctx"] > 0 and props["modalities"] == {
        "vision": False,
        "audio": False,
    }
    assert "/" not in props["model_path"]
    assert all(not slot["is_processing"] or slot["id"] >= 0 for slot in http.get("/slots").json())
    assert http.get("/lora-adapters").json() == [] and http.get("/v1/health").json() == {"status": "ok"}
    assert http.get("/tokenizer_info").json()["vocab_size"] > 0
    assert http.get("/models").json() == http.get("/v1/models").json()
    assert http.post("/props", json={}).status_code == http.post("/slots", json={}).status_code == 405


def test_tokens_in_its_words(http: httpx.Client) -> None:
    assert http.post("/tokenize", json={"content": "ab"}).json()["tokens"] == [97, 98]
    pieces = http.post("/tokenize", json={"content": "aé", "with_pieces": True}).json()["tokens"]
    assert pieces == [{"id": 97, "piece": "a"}, {"id": 195, "piece": [195]}, {"id": 169, "piece": [169]}]
    assert http.post("/detokenize", json={"tokens": [97, 98]}).json()["content"] == "ab"


@pytest.mark.parametrize("path", ["/rerank", "/reranking", "/v1/reranking", "/v1/rerank/"])
def test_ranking_has_several_names(http: httpx.Client, path: str) -> None:
    body = {"query": "x", "documents": ["y"]}
    assert http.post(path, json=body).json() == http.post("/v1/rerank", json=body).json()


def test_transcriptions_are_refused_by_name(http: httpx.Client) -> None:
    refused = http.post("/v1/audio/transcriptions", json={})
    assert refused.status_code == 404 and "transcriptions" in refused.json()["error"]["message"]


def test_the_client_of_openai_without_v1(server: Running) -> None:
    with OpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
        answer = client.chat.completions.create(model="", messages=HELLO, max_tokens=4)  # type: ignore[arg-type]
    assert answer.model == MODEL


def test_slashes_at_the_end(http: httpx.Client) -> None:
    assert http.get("/v1/models/").json() == http.get("/v1/models").json()
    body = {"messages": HELLO, "max_tokens": 4}
    assert http.post("/v1/chat/completions/", json=body).status_code == 200


@pytest.mark.parametrize(
    ("path", "fields"),
    [("/completion", {"prompt": PROMPT}), ("/v1/completions", {"prompt": PROMPT}), ("/v1/chat/completions", {})],
)
def test_timings_and_progress_on_the_way(http: httpx.Client, path: str, fields: dict[str, Any]) -> None:
    body = {**(fields or {"messages": HELLO}), "max_tokens": 5, "stream": True, "ignore_eos": True, "seed": 1}
    text = http.post(path, json={**body, "timings_per_token": True, "return_progress": True}).text
    chunks = [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]
    (progress,) = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    assert progress["processed"] == progress["total"] >= progress["cache"] >= 0
    timed = [chunk["timings"] for chunk in chunks if "timings" in chunk]
    counts = [timings["predicted_n"] for timings in timed if "predicted_n" in timings]
    assert counts == sorted(counts) and 0 < counts[-1] <= 5
    plain = http.post(path, json=body).text
    assert "prompt_progress" not in plain and plain.count('"timings"') == 1
