"""Texts that several far engines make vectors of: spread over them, and left to another where one fails."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.served.model import ServedModel
from tests.api.running import Listening, listening
from tests.far import FarSide, far_model, far_side
from tests.polling import HANG_S, wait_until

CONFIG = Config(drain_seconds=0.2)
TEXTS = [[1, 2], [3]]


class Several:
    """Two engines behind one server."""

    def __init__(self, stack: ExitStack) -> None:
        self.sides: list[FarSide] = [stack.enter_context(far_side()) for _ in range(2)]
        # Looked at once, at the start: so that what a request finds out is all that is known of them.
        self.model = stack.enter_context(far_model(*(side.url for side in self.sides), interval_s=3600.0))
        self.live: Listening = stack.enter_context(listening([ServedModel.of(self.model, CONFIG)], CONFIG))

    def ask(self) -> tuple[int, dict[str, Any]]:
        with self.live.http() as http:
            answer = http.post("/v1/embeddings", json={"input": TEXTS})
        return answer.status_code, answer.json()

    @property
    def num_asked(self) -> list[int]:
        return [side.num_embedded for side in self.sides]


@pytest.fixture
def several() -> Iterator[Several]:
    with ExitStack() as stack:
        yield Several(stack)


def test_they_go_where_there_is_least_to_do(several: Several) -> None:
    first, second = several.model.engines.all
    first.work = 5.0
    assert several.ask()[0] == 200 and several.num_asked == [0, 1]
    assert (first.work, second.work) == (5.0, 0.0), "what is over is no work"
    second.work = 9.0
    assert several.ask()[0] == 200 and several.num_asked == [1, 1]


def test_another_one_is_asked_where_one_fails(several: Several) -> None:
    several.sides[0].status = 500
    for _ in range(4):
        status, answer = several.ask()
        assert status == 200 and len(answer["data"]) == len(TEXTS)
    assert several.num_asked == [0, 4] and not several.model.engines.all[0].is_up, "after three in a row it rests"


def test_one_that_writes_nonsense_has_failed(several: Several) -> None:
    several.sides[0].num_missing = 1
    status, answer = several.ask()
    assert status == 200 and len(answer["data"]) == len(TEXTS) and several.num_asked == [1, 1]


def test_where_all_fail_it_is_unavailable(several: Several) -> None:
    for side in several.sides:
        side.status = 503
    status, answer = several.ask()
    assert (status, answer["error"]["code"]) == (503, "engine_unavailable")


@pytest.mark.parametrize(("said", "status"), [(400, 400), (429, 429), (401, 503)])
def test_a_refusal_is_handed_on(several: Several, said: int, status: int) -> None:
    """No other engine would say anything else."""
    for side in several.sides:
        side.status = said
    found, answer = several.ask()
    assert found == status and several.model.engines.all[0].is_up
    assert answer["error"]["param"] == ("input" if status == 400 else None)


def test_who_waits_is_work_until_he_leaves(several: Several) -> None:
    several.sides[0].holds_embeddings = True
    body = json.dumps({"input": TEXTS}).encode()
    head = f"POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    with socket.create_connection(several.live.address) as sock:
        sock.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + body)
        assert several.sides[0].is_holding.wait(HANG_S)
        assert [several.ask()[0] for _ in range(2)] == [200, 200] and several.num_asked == [1, 2]
    assert several.sides[0].has_left.wait(HANG_S)
    wait_until(lambda: all(engine.work == 0.0 for engine in several.model.engines.all))
