"""Servers with little room: contexts that end, queues that are full, stores that are full, engines that fail."""

from collections.abc import Iterator
from dataclasses import replace

from tests.golden.case import MODEL, Case, Json, assistant, both, get, user

CHAT, TEXT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"


def generating(said: str) -> list[Case]:
    """One request to each API that generates."""
    greedy: Json = {"model": MODEL, "temperature": 0}
    return [
        Case("chat", CHAT, {**greedy, "messages": [user(said)]}),
        Case("text", TEXT, {**greedy, "prompt": said}),
        Case("response", RESPONSES, {**greedy, "input": said, "store": False}),
        Case("message", MESSAGES, {**greedy, "messages": [user(said)], "max_tokens": 5}),
    ]


def cases() -> Iterator[Case]:
    yield from _small()
    for case in generating("Hello"):
        yield from both(replace(case, name=f"{case.name} waits in vain", server="full"))
    embed = {"model": MODEL, "input": "Hello"}
    yield Case("embeddings wait in vain", "/v1/embeddings", embed, server="full")
    yield Case("compaction waits in vain", f"{RESPONSES}/compact", embed, server="full")
    background = {"model": MODEL, "input": "Hello", "background": True}
    yield Case("the background waits in vain", RESPONSES, background, server="full")
    for case in generating("a~b"):
        yield from both(replace(case, name=f"{case.name} fails", server="broken"))
    yield from _broken()
    yield from _few_rows()
    yield from _few_bytes()


def _small() -> Iterator[Case]:
    for case in generating("Hello" * 16):
        most = {"max_output_tokens": 500} if case.path == RESPONSES else {"max_tokens": 500}
        yield from both(
            replace(case, name=f"{case.name} to the end of the context", server="small", body={**case.body, **most})
        )
    for case in generating("Hello" * 40):
        yield from both(replace(case, name=f"{case.name} too long", server="small"))
    talk = [user("One" * 10), assistant("Two" * 5), user("Three" * 4), assistant("Four" * 4), user("So?")]
    cut: Json = {
        "model": MODEL,
        "input": talk,
        "truncation": "auto",
        "max_output_tokens": 4,
        "temperature": 0,
        "store": False,
    }
    truncated = Case("truncated", RESPONSES, cut, server="small")
    yield from both(truncated)
    yield replace(truncated, name="not truncated", body={**cut, "truncation": "disabled"})
    yield replace(truncated, name="truncated in vain", body={**cut, "input": [user("a" * 200)]})
    yield replace(truncated, name="truncated where there is no limit", body={**cut, "max_output_tokens": None})
    counted = {"model": MODEL, "input": talk}
    yield replace(truncated, name="counted", path=f"{RESPONSES}/input_tokens", body=counted)
    yield replace(truncated, name="compacted", path=f"{RESPONSES}/compact", body={**counted, "temperature": 0})
    least = {"model": MODEL, "messages": [user("Hello")], "min_tokens": 120, "temperature": 0}
    yield Case("more than the context at least", CHAT, least, server="small")
    yield Case("tokens of a long prompt", "/tokenize", {"prompt": "a" * 140}, server="small")
    yield Case("a long text to embed", "/v1/embeddings", {"model": MODEL, "input": "a" * 140}, server="small")


def _broken() -> Iterator[Case]:
    keep = {"model": MODEL, "messages": [user("a~b")], "temperature": 0, "store": True}
    yield from both(Case("what fails is not stored", CHAT, keep, server="broken"))
    yield get(CHAT, "nothing is stored of it", server="broken")
    talks = {"model": MODEL, "messages": [[user("a~b")], [user("Hm")]], "temperature": 0, "max_tokens": 3}
    yield Case("one of two conversations fails", CHAT, talks, server="broken")
    ask = {"model": MODEL, "input": "a~b", "temperature": 0}
    pattern = {"failed": r"resp_[0-9a-f]{32}"}
    yield Case("a response that fails and is stored", RESPONSES, ask, server="broken")
    yield Case("a stream that fails and is stored", RESPONSES, {**ask, "stream": True}, server="broken", keep=pattern)
    yield get(f"{RESPONSES}/<<failed>>", "get what failed", server="broken")
    yield get(f"{RESPONSES}/<<failed>>?stream=true", "stream what failed", server="broken")
    yield Case("after what failed", RESPONSES, {**ask, "input": "Hm", "previous_response_id": "<<failed>>",
                                                "max_output_tokens": 3}, server="broken")  # fmt: skip
    yield Case("a background that fails", RESPONSES, {**ask, "background": True}, server="broken", keep=pattern)
    yield get(f"{RESPONSES}/<<failed>>", "until it failed", server="broken", until='"status":"failed"')
    yield Case("compact what fails", f"{RESPONSES}/compact", ask, server="broken")


def _few_rows() -> Iterator[Case]:
    chat = Case("", CHAT, {"model": MODEL, "messages": [user("Hi")], "max_tokens": 2, "temperature": 0, "store": True})
    chat = replace(chat, server="few rows")
    ask: Json = {"model": MODEL, "input": "Hi", "max_output_tokens": 2, "temperature": 0}
    yield replace(chat, name="the first row", keep={"row": r"chatcmpl-[0-9a-f]{32}"})
    yield replace(chat, name="a conversation that needs too many rows", path="/v1/conversations",
                  body={"items": [user("a"), user("b")]})  # fmt: skip
    yield replace(chat, name="the second row", path="/v1/conversations", body={}, keep={"talk": r"conv_[0-9a-f]{32}"})
    yield from both(replace(chat, name="a third row", is_cut=True))
    yield from both(replace(chat, name="a third row for a response", path=RESPONSES, body=ask))
    yield replace(chat, name="a third row in the background", path=RESPONSES, body={**ask, "background": True})
    yield replace(
        chat, name="a third row for an item", path="/v1/conversations/<<talk>>/items", body={"items": [user("a")]}
    )
    inside = {**ask, "conversation": "<<talk>>", "store": False}
    yield from both(replace(chat, name="a third row in a conversation", path=RESPONSES, body=inside))
    yield replace(chat, name="what is not stored needs none", path=RESPONSES, body={**ask, "store": False})
    yield Case("make room", f"{CHAT}/<<row>>", method="DELETE", server="few rows")
    yield replace(chat, name="the room that was made")


def _few_bytes() -> Iterator[Case]:
    long, longer = "a" * 2000, "a" * 4000
    chat = Case("", CHAT, {"model": MODEL, "max_tokens": 2, "temperature": 0, "store": True}, server="few bytes")
    ask: Json = {"model": MODEL, "max_output_tokens": 2, "temperature": 0}
    for name, said in (("too many bytes with the answer", long * 2), ("too many bytes", longer)):
        yield from both(
            replace(chat, name=f"{name}, chat", is_cut=True, body={**chat.body, "messages": [user(said[:2900])]})
        )
        yield from both(replace(chat, name=f"{name}, response", path=RESPONSES, body={**ask, "input": said[:2900]}))
    yield replace(chat, name="far too many bytes, chat", body={**chat.body, "messages": [user(longer)]})
    yield replace(chat, name="far too many bytes, response", path=RESPONSES, body={**ask, "input": longer})
    yield replace(
        chat, name="far too many bytes, background", path=RESPONSES, body={**ask, "input": longer, "background": True}
    )
    new = replace(chat, path="/v1/conversations")
    yield replace(new, name="a large item", body={"items": [user("a"), user(longer)]})
    yield replace(new, name="an item that is just too large", body={"items": [user("a" * 2950)]})
    yield replace(new, name="a conversation for few bytes", body={}, keep={"talk": r"conv_[0-9a-f]{32}"})
    yield replace(
        new, name="a large item later", path="/v1/conversations/<<talk>>/items", body={"items": [user(longer)]}
    )
    inside = {**ask, "conversation": "<<talk>>", "input": longer, "store": False}
    yield replace(new, name="a large item in a response", path=RESPONSES, body=inside)
