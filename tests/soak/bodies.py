"""Bodies of every API with something wrong in them, by value or by byte: an answer or a 4xx in the API's own shape."""

import json
import logging
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import cache
from typing import Any

from tests.golden.bodies import BODIES
from tests.golden.mutations import mutations
from tests.golden.servers import SERVERS
from tests.golden.wire import Answered, Line
from tests.soak.outcome import Outcome, scaled

_NUM_BODIES, _NUM_LINES = 100_000, 4
_NAMES = tuple(BODIES)


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
    return [body for _, body in mutations(BODIES[name][1])]


def _wrong(number: int, line: Line, other: Line) -> Iterator[str]:
    chance = random.Random(number)
    name = chance.choice(_NAMES)
    path, data = BODIES[name][0], _mutated(chance, name)
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
            at = chance.randrange(len(data))
            data[at : at + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
    return bytes(data)


def _is_error(path: str, answered: Answered) -> bool:
    try:
        error = json.loads(answered.body)
    except ValueError:
        return False
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
