"""Images through the three APIs: seen, told of, and refused."""

from collections.abc import Iterator
from dataclasses import replace

from tests.golden.case import MODEL, Case, Json, assistant, both, user
from tests.golden.tools import called
from tests.images import blue, data_url, plain, red

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
URLS: dict[str, str] = {
    "no base64": "data:image/png;base64,!!",
    "half a base64": "data:image/png;base64,AAA",
    "no image": "data:image/png;base64,AAAA",
    "empty": "data:image/png;base64,",
    "a damaged image": data_url(plain(8, 8)[:60]),
    "another type": "data:image/bmp;base64,AAAA",
    "no base64 at all": "data:image/png,AAAA",
    "too many bytes": data_url(plain(4, 4) + bytes(5000)),
    "too large for the model": data_url(plain(800, 800)),
    "from the web": "http://example.com/a.png",
    "a file": "file:///etc/passwd",
    "nothing": "x",
}
FETCHED: dict[str, str] = {
    "a file": "file:///etc/passwd",
    "credentials": "http://a:b@example.com/",
    "a private host": "http://127.0.0.1/a.png",
    "a strange port": "http://127.0.0.1:22/a.png",
    "no port": "http://example.com:0/",
    "a hidden address": "http://0x7f000001/",
    "no host": "http://[::z]/",
    "a host that is none": "http://-a-/",
    "too many pixels": red(100, 100),
}


def chat_part(url: str) -> Json:
    return {"type": "image_url", "image_url": {"url": url, "detail": "low"}}


def response_part(url: str) -> Json:
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def block(url: str) -> Json:
    if not url.startswith("data:image") or ";base64," not in url:
        return {"type": "image", "source": {"type": "url", "url": url}}
    media, _, data = url.removeprefix("data:").partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}


def asked(path: str, *parts: str) -> Json:
    """The same question in the words of an API: texts, and URLs of images."""
    show, kind = {CHAT: (chat_part, "text"), RESPONSES: (response_part, "input_text"), MESSAGES: (block, "text")}[path]
    content = [show(part) if is_url(part) else {"type": kind, "text": part} for part in parts]
    if path == RESPONSES:
        return {"model": MODEL, "input": [user(content)], "max_output_tokens": 3, "temperature": 0, "store": False}
    return {"model": MODEL, "messages": [user(content)], "max_tokens": 3, "temperature": 0}


def is_url(part: str) -> bool:
    return part.startswith(("data:", "http:", "file:", "x"))


def of_a_tool(path: str, url: str) -> Json:
    match path:
        case "/v1/chat/completions":
            said = [user("Hi"), assistant(tool_calls=called(("c1", "look", "{}")))]
            shown = {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "See"}, chat_part(url)]}
            return {**asked(path, ""), "messages": [*said, shown, shown]}
        case "/v1/responses":
            call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
            shown = {"type": "function_call_output", "call_id": "c1", "output": [response_part(url)]}
            return {**asked(path, ""), "input": [user("Hi"), call, shown]}
        case _:
            use = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
            shown = {
                "type": "tool_result",
                "tool_use_id": "t1",
                "content": [block(url), {"type": "text", "text": "See"}],
            }
            return {**asked(path, ""), "messages": [user("Hi"), assistant([use]), user([shown])]}


def cases() -> Iterator[Case]:
    for path in (CHAT, RESPONSES, MESSAGES):
        seeing = Case("", path, server="seeing")
        yield from both(replace(seeing, name=f"{path}: two images", body=asked(path, "A", red(), "or", blue(), "?")))
        yield replace(seeing, name=f"{path}: too many", body=asked(path, red(), blue(), red(16, 16)))
        yield replace(seeing, name=f"{path}: of a tool", body=of_a_tool(path, red()))
        yield replace(seeing, name=f"{path}: none", body=asked(path, "Hello"))
        for name, url in URLS.items():
            yield replace(seeing, name=f"{path} refuses {name}", body=asked(path, "Look:", url))
        for name, url in FETCHED.items():
            yield replace(
                seeing, name=f"{path} does not fetch {name}", server="fetching", body=asked(path, "Look:", url)
            )
        blind = Case("", path)
        yield replace(blind, name=f"{path}: blind", body=asked(path, "Look:", red()))
        yield from both(replace(blind, name=f"{path}: blind, of a tool", body=of_a_tool(path, red())))
    yield from _others()


def _others() -> Iterator[Case]:
    looks = [turn for _ in range(9) for turn in (*asked(RESPONSES, "Look:", red(), blue())["input"], assistant("Yes."))]
    many = {**asked(RESPONSES, ""), "input": [*looks, user("So?")]}
    yield Case("too many images of earlier", RESPONSES, many, server="seeing")
    yield Case("too many images of earlier, truncated", RESPONSES, {**many, "truncation": "auto"}, server="seeing")
    seen = [red(), blue()]
    talks = [[user("Hi")], asked(CHAT, "Look:", seen[0])["messages"], asked(CHAT, "Or:", seen[1])["messages"]]
    batch = {**asked(CHAT, ""), "messages": talks}
    yield Case("conversations with images", CHAT, batch, server="seeing", is_unordered=True)
    wrong = {**batch, "messages": [talks[1], asked(CHAT, "Look:", URLS["no image"])["messages"]]}
    yield Case("conversations with a wrong image", CHAT, wrong, server="seeing")
    blind = {**batch, "messages": [talks[0], of_a_tool(CHAT, red())["messages"]]}
    yield Case("conversations of the blind", CHAT, blind)
    yield Case("system with an image", CHAT, {**batch, "messages": [{"role": "system", "content": [chat_part(red())]}]})
    counted = ((RESPONSES + "/input_tokens", RESPONSES), (MESSAGES + "/count_tokens", MESSAGES))
    for path, api in counted:
        body = asked(api, "Look:", red())
        body = {name: value for name, value in body.items() if name in ("model", "messages", "input")}
        yield Case(f"{path} with an image", path, body, server="seeing")
        yield Case(f"{path} of the blind", path, body)
        yield Case(
            f"{path} with a wrong image", path, {**body, **_part_of(asked(api, URLS["no image"]))}, server="seeing"
        )
    for path in ("/tokenize", "/apply-template"):
        yield Case(f"{path} with an image", path, {"messages": talks[1]}, server="seeing")
    yield Case("/tokenize with a wrong image", "/tokenize", {"messages": wrong["messages"][1]}, server="seeing")
    stored = {**asked(RESPONSES, "Look:", red()), "store": True}
    yield Case("a stored image", RESPONSES, stored, server="seeing", keep={"seen": r"resp_[0-9a-f]{32}"})
    yield Case("its items", f"{RESPONSES}/<<seen>>/input_items", method="GET", server="seeing")
    later = {
        "model": MODEL,
        "input": "And?",
        "previous_response_id": "<<seen>>",
        "max_output_tokens": 3,
        "temperature": 0,
    }
    yield Case("after a stored image", RESPONSES, later, server="seeing")
    kept = {**asked(CHAT, "Look:", red()), "store": True}
    yield Case("a stored chat with an image", CHAT, kept, server="seeing", keep={"chat": r"chatcmpl-[0-9a-f]{32}"})
    yield Case("its messages", f"{CHAT}/<<chat>>/messages", method="GET", server="seeing")


def _part_of(body: Json) -> Json:
    return {name: value for name, value in body.items() if name in ("messages", "input")}
