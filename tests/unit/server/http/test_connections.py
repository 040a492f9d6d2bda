"""One connection more than there may be: who does nothing makes way, the longest idle first; who is answered stays."""

import asyncio
import subprocess
import sys
from dataclasses import dataclass, field

import pytest

from proxy_inference_engine.server.http import connections
from proxy_inference_engine.server.http.connections import MAX_CONNECTIONS, WANTED_FILES, make_way
from tests.polling import HANG_S

LOCAL, FAR, OTHER = "127.0.0.1", "192.0.2.1", "192.0.2.2"


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


@dataclass(eq=False)
class Client:
    address: str = LOCAL
    waits_since: float | None = 0.0
    is_reading_headers: bool = False
    transport: Transport = field(default_factory=Transport)

    @property
    def client(self) -> tuple[str, int]:
        return self.address, 1


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 6)
    monkeypatch.setattr(connections, "MAX_CONNECTIONS_PER_ADDRESS", 3)


def closed(everybody: list[Client]) -> list[int]:
    return [number for number, each in enumerate(everybody) if each.transport.is_closed]


def test_while_there_is_room_nobody_goes() -> None:
    everybody = [Client() for _ in range(6)]
    assert make_way(everybody[-1], everybody)
    assert closed(everybody) == []


def test_the_longest_idle_goes_first() -> None:
    """A thousand idle connections made /health a 503 for half a minute."""
    waits = [None, 3.0, 1.0, None, 2.0, 5.0]
    everybody = [Client(waits_since=since) for since in waits]
    for expected in ([2], [2, 4], [1, 2, 4]):
        newcomer = Client(waits_since=9.0)
        everybody.append(newcomer)
        assert make_way(newcomer, everybody)
        assert closed(everybody) == expected


def test_who_sends_headers_goes_after_who_sends_nothing() -> None:
    everybody = [Client(waits_since=1.0, is_reading_headers=True) for _ in range(5)] + [Client(waits_since=8.0)]
    for expected in ([5], [0, 5]):
        newcomer = Client(waits_since=9.0, is_reading_headers=True)
        everybody.append(newcomer)
        assert make_way(newcomer, everybody)
        assert closed(everybody) == expected


def test_who_is_answered_stays() -> None:
    everybody = [Client(waits_since=None) for _ in range(6)] + [Client(waits_since=9.0)]
    assert not make_way(everybody[-1], everybody)
    assert closed(everybody) == []


def test_an_address_has_its_share_and_makes_way_for_itself() -> None:
    everybody = [Client(OTHER, 0.0), *(Client(FAR, float(number)) for number in range(1, 4)), Client(FAR, 9.0)]
    assert make_way(everybody[-1], everybody)
    assert closed(everybody) == [1]
    busy = [Client(OTHER, 0.0), *(Client(FAR, None) for _ in range(3)), Client(FAR, 9.0)]
    assert not make_way(busy[-1], busy)
    assert closed(busy) == []


def test_this_machine_has_no_share() -> None:
    everybody = [Client(LOCAL, None) for _ in range(5)] + [Client(LOCAL, 9.0)]
    assert make_way(everybody[-1], everybody)


def test_many_may_be_behind_a_proxy() -> None:
    everybody = [Client(FAR, waits_since=float(number)) for number in range(5)]
    assert make_way(everybody[-1], everybody, lambda address: address == FAR)
    assert closed(everybody) == []
    assert make_way(everybody[-1], everybody, lambda address: address == OTHER)
    assert closed(everybody) == [0]


# Open files

PROGRAM = (
    "import resource; from proxy_inference_engine.server.http.connections import allow_files; allow_files()\n"
    "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ("ulimit -S -n 1024", WANTED_FILES),
        (f"ulimit -S -n {WANTED_FILES + 1}", WANTED_FILES + 1),
        (f"ulimit -S -n {2 * MAX_CONNECTIONS}", WANTED_FILES),  # before vLLM each answer is a connection more
        ("ulimit -S -n 300; ulimit -H -n 500", 500),
    ],
)
def test_the_limit_is_raised_as_far_as_it_may_be(limits: str, expected: int) -> None:
    command = ["sh", "-c", f'{limits}; exec "$0" -c "$1"', sys.executable, PROGRAM]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    resource = pytest.importorskip("resource")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # which a library that other tests import lowers to 4,096
    expected = expected if hard == resource.RLIM_INFINITY else min(expected, hard)
    assert answer.stdout.strip() == str(expected), answer.stderr
