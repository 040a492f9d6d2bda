"""Embeddings and rankings, tokens and templates, models, health and metrics."""

from collections.abc import Iterator
from dataclasses import replace

from tests.golden.case import MODEL, Case, Json, assistant, both, each, get, refused, user
from tests.golden.tools import PING, SHELL, WEATHER, called

EMBED = Case("embed", "/v1/embeddings", {"model": MODEL, "input": "Hello", "dimensions": 4})
EMBEDDINGS: dict[str, Json] = {
    "a text": {"dimensions": None},
    "fewer dimensions": {},
    "texts": {"input": ["One", "Two", "One"]},
    "ids": {"input": [72, 105]},
    "lists of ids": {"input": [[72, 105], [72]]},
    "floats": {"encoding_format": "float", "user": "anna"},
    "base64": {"encoding_format": "base64", "dimensions": 32},
    "base64, fewer": {"encoding_format": "base64", "input": ["One", "Two"]},
    "model by alias": {"model": "default"},
}
NOT_EMBEDDED: list[Json] = [
    {"model": ...},
    {"model": "gpt-4"},
    {"input": ...},
    {"input": ""},
    {"input": []},
    {"input": {}},
    {"input": 1},
    {"input": ["a", ""]},
    {"input": ["a", 1]},
    {"input": [1, "a"]},
    {"input": [[1], []]},
    {"input": [[1], ["a"]]},
    {"input": [5000]},
    {"input": [[1], [5000]]},
    {"input": [True]},
    {"input": ["a"] * 2049},
    {"input": [1] * 300_001},
    {"input": "a" * 9000},
    {"input": ["a", "b" * 9000]},
    {"input": ["a" * 8000] * 40},
    {"encoding_format": "int8"},
    {"dimensions": 0},
    {"dimensions": 33},
    {"dimensions": "4"},
    {"user": "x" * 513},
    {"unknown": 1},
]
RANK = Case("rank", "/v1/rerank", {"model": MODEL, "query": "tea", "documents": ["One", "Two", "Hm"]}, server="ranking")
RANKINGS: dict[str, Json] = {
    "documents": {},
    "objects": {"documents": [{"text": "One"}, "Two"]},
    "the best": {"top_n": 2},
    "more than there are": {"top_n": 20},
    "without documents": {"return_documents": False},
    "an empty document": {"documents": ["", "One"]},
}
NOT_RANKED: list[Json] = [
    {"model": ...},
    {"model": "gpt-4"},
    {"query": ...},
    {"query": ""},
    {"query": 1},
    {"documents": ...},
    {"documents": []},
    {"documents": "One"},
    {"documents": [1]},
    {"documents": [{}]},
    {"documents": [{"text": "a", "more": 1}]},
    {"documents": ["a"] * 2049},
    {"documents": ["a", "b" * 9000]},
    {"query": "a" * 9000},
    {"documents": ["a" * 8000] * 40},
    {"top_n": 0},
    {"return_documents": 1},
    {"unknown": 1},
]
TALK = [{"role": "system", "content": "Be brief."}, user("Hi")]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
SEEN = [
    user("Hi"),
    assistant(tool_calls=called(("c1", "ping", "{}"))),
    {"role": "tool", "tool_call_id": "c1", "content": [IMAGE]},
]
TEMPLATE = Case("template", "/apply-template", {"messages": TALK})
TEMPLATES: dict[str, Json] = {
    "a talk": {"model": MODEL},
    "no generation prompt": {"add_generation_prompt": False},
    "continued": {"messages": [user("Hi"), assistant("I am ")], "continue_final_message": True},
    "tools": {"tools": [WEATHER, PING, SHELL]},
    "calls": {
        "messages": [
            *TALK,
            assistant("I look.", tool_calls=called(("c1", "ping", "{}"))),
            {"role": "tool", "tool_call_id": "c1", "content": "pong"},
        ],
        "tools": [PING],
    },
    "a variable that nothing reads": {"chat_template_kwargs": {"colour": 1}},
    "an image of a tool": {"messages": SEEN},
}
NOT_RENDERED: list[Json] = [
    {"messages": ...},
    {"messages": []},
    {"messages": [TALK]},
    {"messages": [user(None)]},
    {"messages": [user([IMAGE])]},
    {"messages": [{"role": "tool", "content": "a", "tool_call_id": "c"}]},
    {"model": "gpt-4"},
    {"model": 1},
    {"continue_final_message": True},
    {"continue_final_message": True, "add_generation_prompt": True},
    {"chat_template_kwargs": {"messages": []}},
    {"tools": [PING, PING]},
    {"tools": [1]},
    {"prompt": "a"},
]
TOKENS: dict[str, Json] = {
    "a prompt": {"prompt": "Grüße"},
    "a prompt with texts": {"prompt": "Grüße <|im_end|>", "return_token_strs": True},
    "a prompt in which nothing is special": {"prompt": "Grüße <|im_end|>", "parse_special": False},
    "special tokens": {"prompt": "Hi", "add_special_tokens": True},
    "no special tokens": {"prompt": "Hi", "add_special_tokens": False},
    "no prompt": {"prompt": ""},
    "messages": {"messages": TALK, "return_token_strs": True, "model": "default"},
    "messages with tools": {"messages": TALK, "tools": [PING], "add_generation_prompt": False},
    "messages to be continued": {"messages": [user("Hi"), assistant("I am")], "continue_final_message": True},
    "messages and a variable that nothing reads": {"messages": TALK, "chat_template_kwargs": {"a": 1}},
    "messages without special tokens": {"messages": TALK, "add_special_tokens": False},
    "an image of a tool": {"messages": SEEN},
}
NOT_TOKENS: list[Json] = [
    {},
    {"prompt": "a", "messages": TALK},
    {"prompt": 1},
    {"prompt": ["a"]},
    {"prompt": "a", "tools": [PING]},
    {"prompt": "a", "chat_template_kwargs": {"a": 1}},
    {"messages": TALK, "add_special_tokens": True},
    {"messages": TALK, "parse_special": True},
    {"messages": [TALK]},
    {"messages": [user([IMAGE])]},
    {"messages": TALK, "continue_final_message": True},
    {"prompt": "a", "model": "gpt-4"},
    {"prompt": "a", "unknown": 1},
    {"prompt": "a", "add_special_tokens": 1},
]
NOT_TEXTS: list[Json] = [
    {},
    {"tokens": "a"},
    {"tokens": [-1]},
    {"tokens": [5000]},
    {"tokens": [1.5]},
    {"tokens": [1], "a": 1},
]


def cases() -> Iterator[Case]:
    yield from each(EMBED, EMBEDDINGS)
    yield from refused(EMBED, NOT_EMBEDDED)
    yield from each(replace(EMBED, name="embed with BOS", server="opened by bos"), {"text": {}, "ids": {"input": [72]}})
    yield replace(EMBED, name="embed with a model that ranks", server="ranking")
    yield replace(EMBED, name="embed NaN", server="broken", body={"model": MODEL, "input": ["a", "~"]})
    yield replace(EMBED, name="embed with a model that does nothing else", server="embedding only")
    yield from each(RANK, RANKINGS)
    yield from refused(RANK, NOT_RANKED)
    yield replace(RANK, name="rank with a model that embeds", server="plain")
    yield from each(replace(RANK, name="rank pairs", server="ranking pairs"), RANKINGS)
    yield from each(TEMPLATE, TEMPLATES)
    yield from refused(TEMPLATE, NOT_RENDERED)
    tokens = Case("tokens", "/tokenize", {})
    yield from each(tokens, TOKENS)
    yield from refused(tokens, NOT_TOKENS)
    yield replace(
        tokens, name="tokens with BOS", server="opened by bos", body={"prompt": "Hi", "return_token_strs": True}
    )
    text = Case("text", "/detokenize", {"tokens": [71, 195, 188, 258, 226]})
    yield text
    yield replace(text, name="text of nothing", body={"tokens": [], "model": "default"})
    yield replace(text, name="text of a model that is none", body={"tokens": [], "model": "gpt-4"})
    yield from refused(replace(text, body={}), NOT_TEXTS)
    yield from _models()
    yield from _silent()


def _silent() -> Iterator[Case]:
    """A model that only embeds says nothing."""
    bodies: dict[str, Json] = {
        "/v1/chat/completions": {"messages": [user("Hi")]},
        "/v1/completions": {"prompt": "Hi"},
        "/v1/responses": {"input": "Hi"},
        "/v1/messages": {"messages": [user("Hi")], "max_tokens": 2},
    }
    for path, body in bodies.items():
        yield from both(Case(f"no text from {path}", path, {"model": MODEL, **body}, server="embedding only"))


def _models() -> Iterator[Case]:
    yield get("/v1/models")
    for name in ("fake", "default", "other", "a/b", "a%2Fb", "%00"):
        yield get(f"/v1/models/{name}")
    yield Case("delete a model", "/v1/models/fake", method="DELETE")
    yield Case("delete no model", f"/v1/models/{'m' * 100}", method="DELETE")
    keyed = {"server": "keyed", "headers": [("x-api-key", "key-of-anna")]}
    for path in ("/v1/models", "/v1/models/gpt-4o", "/v1/models/gpt-9", "/v1/models/claude-x", "/v1/models/o3"):
        yield get(path, f"{path} with aliases", **keyed)
    yield get(f"/v1/models/gpt-{'9' * 300}", "too long an alias", **keyed)
    yield get("/admin/models")
    for verb in ("load", "pin", "unpin", "unload"):
        for name in ("fake", "other"):
            yield Case(f"{verb} {name}", f"/admin/models/{name}/{verb}", server="loaded by hand")
    for path in ("/health", "/ready"):
        yield get(path)
        yield get(path, f"{path} without a key", server="keyed")
    yield get("/health?a=b", "health with a query")
    yield get("/metrics", server="held")
    yield get("/metrics", "metrics of requests", server="opened by bos")
