"""Ollama's API: what is said line by line and at once, what is told of models, what is ignored and what is refused."""

from collections.abc import Iterator
from dataclasses import replace

from tests.golden.case import MODEL, Case, Json, assistant, each, get, refused, user
from tests.golden.tools import PING, WEATHER
from tests.images import red

RED = red(4, 4).partition(",")[2]  # the base64 alone
SHORT: Json = {"num_predict": 6, "temperature": 0, "seed": 1}
CHAT = Case("ollama chat", "/api/chat", {"model": MODEL, "messages": [user("Hello")], "options": SHORT})
GENERATE = Case("ollama generate", "/api/generate", {"model": MODEL, "prompt": "Hello", "options": SHORT})
CLOSED: Json = {"additionalProperties": False}
SCHEMA: Json = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], **CLOSED}
LONG: Json = {"options": {**SHORT, "num_predict": 300}}
CHATS: dict[str, Json] = {
    "a line a token": {},
    "at once": {"stream": False},
    "with a tag": {"model": f"{MODEL}:latest", "stream": False},
    "a schema": {"format": SCHEMA, **LONG},
    "a schema, at once": {"format": SCHEMA, "stream": False, **LONG},
    "a schema that is not all bound": {
        "format": {**SCHEMA, "properties": {"a": {"enum": ["x"], "format": "color"}}},
        "stream": False,
        **LONG,
    },
    "stop": {"options": {**SHORT, "stop": ["e", " "]}, "stream": False},
    "nothing to generate": {"options": {"num_predict": 0}, "stream": False},
    "scores": {"logprobs": True, "top_logprobs": 1, "options": {**SHORT, "num_predict": 2}},
    "scores, at once": {"logprobs": True, "options": {**SHORT, "num_predict": 2}, "stream": False},
    "ignored": {"options": {**SHORT, "num_gpu": 1, "low_vram": False}, "keep_alive": "5m", "more": 1, "stream": False},
    "effort": {"think": "high", "stream": False},
    "goes on": {"messages": [user("Hello"), assistant("Once")], "stream": False},
    "a result of nobody": {"messages": [user("Hello"), {"role": "tool", "content": "x"}], "stream": False},
    "no messages": {"messages": []},
    "no messages, to go": {"messages": [], "keep_alive": 0},
}
GENERATIONS: dict[str, Json] = {
    "a line a token": {},
    "at once": {"stream": False},
    "system": {"system": "Be kind.", "stream": False},
    "raw": {"raw": True, "stream": False},
    "json": {"format": SCHEMA, "stream": False, **LONG},
    "no prompt": {"prompt": ""},
}
NO_CHAT: list[Json] = [
    {"model": "gpt-4"},
    {"messages": 1},
    {"messages": [{"content": "x"}]},
    {"messages": [{"role": "user", "content": ["x"]}]},
    {"messages": [{"role": "user", "content": "x", "images": [1]}]},
    {"messages": [{"role": "user", "content": "x", "images": ["eA=="]}]},
    {"tools": [{"type": "custom", "function": {"name": "a"}}]},
    {"tools": [PING, PING]},
    {"tools": [{"function": {"name": "a", "parameters": {"type": "nothing"}}}]},
    {"format": 1},
    {"format": {"type": "nothing"}},
    {"options": []},
    {"options": {"stop": 1}},
    {"options": {"temperature": -1}},
    {"options": {"repeat_penalty": 0}},
    {"think": 1},
    {"think": True},
    {"keep_alive": "x"},
    {"stream": "no"},
    {"logprobs": True, "top_logprobs": 21},
]
NO_GENERATION: list[Json] = [
    {"template": "x"},
    {"context": [1]},
    {"suffix": "x"},
    {"raw": True, "system": "x"},
    {"raw": True, "images": [RED]},
    {"images": ["eA=="]},
    {"steps": 4},
]
EMBED = Case("ollama embed", "/api/embed", {"model": MODEL, "input": "Hello", "dimensions": 3})
EMBEDDINGS: dict[str, Json] = {
    "a text": {},
    "texts": {"input": ["One", "Two"]},
    "too long": {"input": "a" * 9000},
    "nothing": {"input": ""},
    "an empty list": {"input": []},
    "ignored": {"options": {"num_gpu": 1}, "keep_alive": 5},
}
NOT_EMBEDDED: list[Json] = [
    {"input": ...},
    {"input": 1},
    {"input": [1]},
    {"input": ["a", ""]},
    {"input": "a" * 9000, "truncate": False},
    {"dimensions": 99},
    {"model": "gpt-4"},
]


def cases() -> Iterator[Case]:
    yield from each(CHAT, CHATS)
    yield from each(GENERATE, GENERATIONS)
    yield from _turns()
    yield from refused(CHAT, NO_CHAT)
    yield from refused(GENERATE, NO_GENERATION)
    yield from each(EMBED, EMBEDDINGS)
    yield from refused(EMBED, NOT_EMBEDDED)
    yield Case("ollama embed, ranking", "/api/embed", {"input": "a"}, server="ranking")
    older = Case("ollama embeddings", "/api/embeddings", {"model": MODEL, "prompt": "Hello"})
    yield from each(older, {"a text": {}, "nothing": {"prompt": ""}})
    yield from _models()
    yield replace(CHAT, name="ollama without a key", server="keyed")
    yield replace(CHAT, name="ollama when it is full", server="full")
    broken = {**CHAT.body, "messages": [user("~")]}
    yield replace(CHAT, name="ollama breaks", server="broken", body=broken)
    yield replace(CHAT, name="ollama of a model that only embeds", server="embedding only")


def _turns() -> Iterator[Case]:
    """What the script has for each turn: text, thoughts, calls, one that is cut off."""
    scripted = replace(CHAT, server="scripted")
    for number in range(7):
        history = [turn for _ in range(number) for turn in (user("Go on."), assistant("Yes."))]
        options = {**SHORT, "num_predict": 120}
        fields: Json = {"messages": [*history, user("Go on.")], "tools": [WEATHER, PING], "options": options}
        for is_streamed in (True, False):
            body = {**CHAT.body, **fields, "stream": is_streamed}
            yield replace(scripted, name=f"ollama turn {number}{', streamed' * is_streamed}", body=body)
    for think in (True, False):
        thinking = {**CHAT.body, "messages": [user("a"), assistant("b"), user("c")], "think": think, **LONG}
        yield replace(scripted, name=f"ollama, think: {think}", body=thinking)
    seen = {**CHAT.body, "messages": [{**user("What is it?"), "images": [RED]}], "stream": False}
    yield replace(CHAT, name="ollama sees", server="seeing", body=seen)
    shown = {**GENERATE.body, "images": [RED], "stream": False}
    yield replace(GENERATE, name="ollama is shown", server="seeing", body=shown)
    filled = {**GENERATE.body, "suffix": " world", "stream": False}
    yield replace(GENERATE, name="ollama fills a gap", server="filling", body=filled)


def _models() -> Iterator[Case]:
    for path in ("/api/tags", "/api/ps", "/api/version"):
        yield get(path)
        yield Case(f"HEAD {path}", path, method="HEAD")
    yield Case("HEAD a blob", "/api/blobs/sha256:0", method="HEAD")
    yield get("/api/chat", "ollama: another method")
    yield get("/api/nothing", "ollama: another path")
    yield Case("ollama: aliases", "/api/tags", method="GET", server="keyed", headers=[("x-api-key", "key-of-anna")])
    for name, path in (("show", "/api/show"), ("pull", "/api/pull")):
        for fields in ({"model": MODEL}, {"name": f"{MODEL}:latest", "stream": False}, {"model": "llama3.2"}, {}):
            yield Case(f"ollama {name} {fields}", path, fields)
    yield Case("ollama show, thinking", "/api/show", {"model": MODEL}, server="thinking")
    yield Case("ollama show, seeing", "/api/show", {"model": MODEL}, server="seeing")
    yield Case("ollama show, embedding only", "/api/show", {"model": MODEL}, server="embedding only")
    for fields in ({"model": MODEL}, {"model": "llama3.2"}):
        yield Case(f"ollama delete {fields}", "/api/delete", fields, method="DELETE")
    for name in ("create", "copy", "push", "blobs/sha256:0"):
        yield Case(f"ollama {name}", f"/api/{name}", {"model": MODEL})
