"""Bodies of every API with something wrong in them, by value or by byte: an answer or a 4xx in the API's own shape."""

import json
import logging
import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import cache
from typing import Any

from tests.golden.bodies import BODIES
from tests.golden.case import MODEL
from tests.golden.mutations import mutations
from tests.golden.servers import SERVERS
from tests.golden.wire import Answered, Line
from tests.soak.outcome import Outcome, scaled

_NUM_BODIES, _NUM_LINES = 100_000, 4
_SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}}, "required": ["a"]}
_FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": _SCHEMA}}
_ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
_MESSAGE = {"role": "user", "content": "Hello", "images": []}
_TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": _SCHEMA}}
_OPTIONS = {"num_predict": 4, "temperature": 0.5, "top_k": 3, "stop": ["x"], "seed": 1}
_OLLAMA = {"model": MODEL, "stream": False, "format": _SCHEMA, "options": _OPTIONS, "keep_alive": "5m", "think": False}
_NATIVE = {"n_predict": 4, "temperature": 0.5, "json_schema": _SCHEMA, "stop": ["x"], "n_probs": 2, "stream": False}
_EXTRA = [{"filename": "a", "text": "b"}]
# Routes that the recorded answers do not have.
_ALL: Mapping[str, tuple[str, dict[str, Any]]] = {
    **BODIES,
    "batch": (
        "/v1/batches",
        {"input_file_id": "file-x", "endpoint": "/v1/completions", "completion_window": "24h", "metadata": {"a": "b"}},
    ),
    "format": ("/v1/schemas/check", {"model": MODEL, "response_format": _FORMAT, "instances": [{"a": "b"}, 1]}),
    "compaction": ("/v1/responses/compact", {"model": MODEL, "input": [_ITEM], "instructions": "Be brief."}),
    "items": ("/v1/conversations/conv_x/items", {"items": [_ITEM]}),
    "changed conversation": ("/v1/conversations/conv_x", {"metadata": {"a": "b"}}),
    "stored chat": ("/v1/chat/completions/chatcmpl-x", {"metadata": {"a": "b"}}),
    "ollama chat": ("/api/chat", {**_OLLAMA, "messages": [_MESSAGE], "tools": [_TOOL]}),
    "ollama text": ("/api/generate", {**_OLLAMA, "prompt": "Hello", "system": "s", "suffix": "", "raw": False}),
    "ollama embedding": ("/api/embed", {"model": MODEL, "input": ["a", "b"], "truncate": True, "options": _OPTIONS}),
    "native text": ("/completion", {**_NATIVE, "prompt": ["Hello", [1, 2]]}),
    "infill": ("/infill", {**_NATIVE, "input_prefix": "a", "input_suffix": "b", "input_extra": _EXTRA}),
    "native embedding": ("/embedding", {"content": ["a", "b"], "encoding_format": "float"}),
    "pull": ("/admin/pulls", {"model": "../x"}),
}
_NAMES = tuple(_ALL)


def run(scale: float) -> Outcome:
    num_bodies = scaled(_NUM_BODIES, scale)
    with SERVERS["terse"]() as live, SERVERS["ranking"]() as ranking, _tracebacks() as seen:

        def play(first: int) -> list[str]:
            with closing(Line(live.address)) as line, closing(Line(ranking.address)) as other:
                numbers = range(first, num_bodies, _NUM_LINES)
                return [reason for number in numbers for reason in _wrong(number, line, other)]

        with ThreadPoolExecutor(_NUM_LINES) as pool:
            wrong = [reason for found in pool.map(play, range(_NUM_LINES)) for reason in found]
    return Outcome(num_bodies, wrong + seen)


@cache
def _wrong_values(name: str) -> list[Any]:
    return [body for _, body in mutations(_ALL[name][1])]


def _wrong(number: int, line: Line, other: Line) -> Iterator[str]:
    chance = random.Random(number)
    name = chance.choice(_NAMES)
    path, data = _ALL[name][0], _mutated(chance, name)
    answered = (other if path == "/v1/rerank" else line).send(path, data)
    if answered.status >= 500 or (answered.status >= 400 and not _is_error(path, answered)):
        yield f"{number}: {path} answers {answered.status}: {answered.body[:200]!r}"


def _mutated(chance: random.Random, name: str) -> bytes:
    body = chance.choice(_wrong_values(name))
    if chance.random() < 0.3:
        body = {
            **body,
            **{key: value for key, value in chance.choice(_wrong_values(name)).items() if chance.random() < 0.3},
        }
    data = bytearray(json.dumps(body, ensure_ascii=chance.random() < 0.5).encode())
    if chance.random() < 0.4:
        for _ in range(chance.randint(1, 5)):
            at = chance.randint(0, len(data))
            data[at : at + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
    return bytes(data)


def _is_error(path: str, answered: Answered) -> bool:
    try:
        error = json.loads(answered.body)
    except ValueError:
        return False
    if path.startswith("/api"):
        return isinstance(error, dict) and isinstance(error.get("error"), str)
    keys = {"type", "message"} if path.startswith("/v1/messages") else {"message", "type", "param", "code"}
    return isinstance(error, dict) and set(error["error"]) == keys


@contextmanager
def _tracebacks() -> Iterator[list[str]]:
    """What was logged with one."""
    seen: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info:
                seen.append(f"logged with a traceback: {record.getMessage()}")

    handler, logger = Handler(), logging.getLogger("proxy_inference_engine")
    logger.addHandler(handler)
    try:
        yield seen
    finally:
        logger.removeHandler(handler)
