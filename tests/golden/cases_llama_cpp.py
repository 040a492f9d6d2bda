"""llama.cpp's own routes, and what else only other servers have."""

from collections.abc import Iterator
from dataclasses import replace

from tests.golden.case import Case, Json, each, get, refused, user

ASK: Json = {"prompt": "Once upon", "seed": 1, "n_predict": 6}
BASE = Case("completion", "/completion", ASK)
TABLE: dict[str, Json] = {
    "a seed": {},
    "greedy": {"temperature": 0},
    "grammar": {"grammar": 'root ::= "yes" | "no"', "n_predict": -1},
    "schema": {"json_schema": {"properties": {"a": {"enum": [1]}}, "required": ["a"]}, "n_predict": -1},
    "probabilities": {"n_probs": 2, "n_predict": 2},
    "stop": {"stop": ["a", "e", "o"], "n_predict": 30},
    "some fields": {"response_fields": ["content", "generation_settings/n_predict"]},
    "skipped": {"id_slot": 1, "cache_prompt": False},
    "samplers": {"typical_p": 0.9, "top_n_sigma": 1.5, "dynatemp_range": 0.3, "repeat_penalty": 1.1},
    "mirostat": {"mirostat": 2, "mirostat_tau": 3},
}
REFUSED: list[Json] = [
    {"prompt": None},
    {"prompt": {}},
    {"n_predict": "5"},
    {"grammar": "root ::= nothing"},
    {"lora": [{"id": 0, "scale": 1}]},
    {"n": 2},
    {"unheard_of": 1},
]
READ = ("/props", "/slots", "/lora-adapters", "/tokenizer_info", "/v1/health", "/models")


def cases() -> Iterator[Case]:
    yield from each(BASE, TABLE, is_streamed=True)
    yield from refused(BASE, REFUSED)
    yield Case("several prompts", "/completion", {**ASK, "prompt": ["One", "Two"]})
    yield replace(BASE, name="its other name", path="/completions")
    yield Case("infill", "/infill", {"input_prefix": "a", "input_suffix": "b"})
    yield from (Case(f"POST {path}", path, {"content": "one"}) for path in ("/embedding", "/embeddings"))
    yield Case("chat without a version", "/chat/completions", {"messages": [user("Hi")], "max_tokens": 4, "seed": 1})
    yield Case("response without a version", "/responses", {"input": 5})
    ranked = {"query": "a", "documents": ["b"]}
    yield from (Case(f"POST {path}", path, ranked) for path in ("/rerank", "/reranking", "/v1/reranking"))
    yield Case("transcriptions", "/v1/audio/transcriptions", {})
    yield from map(get, READ)
