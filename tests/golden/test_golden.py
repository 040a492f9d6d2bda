"""The wire is what it was: every case of the golden traffic is answered as in its recording, byte for byte."""

from collections.abc import Iterator
from functools import cache
from itertools import zip_longest

import pytest
from starlette.routing import Match, Route

from tests.api.running import running
from tests.golden.bodies import BODIES
from tests.golden.brief import read_mutations, record_mutations
from tests.golden.cases import GROUPS
from tests.golden.recording import Recording, read, record
from tests.golden.servers import Servers

CASES = [(group, case) for group, cases in GROUPS.items() for case in cases]


@cache
def played(group: str) -> Recording:
    return record(GROUPS[group])


@pytest.mark.parametrize(
    ("group", "name"),
    [(group, case.name) for group, case in CASES],
    ids=[f"{group}: {case.name}".encode("ascii", "replace").decode() for group, case in CASES],
)
def test_traffic(group: str, name: str) -> None:
    assert played(group)[name] == read(group).get(name), "see `python -m tests.golden.record` where this is wanted"


@pytest.mark.parametrize("group", GROUPS)
def test_every_recording_has_its_case(group: str) -> None:
    assert list(read(group)) == [case.name for case in GROUPS[group]]


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with Servers() as started:
        yield started


@pytest.mark.parametrize("name", BODIES)
def test_mutations(servers: Servers, name: str) -> None:
    """What one wrong value, anywhere in a body, is answered."""
    now, then = record_mutations(name, servers), read_mutations(name)
    differing = [f"is  {new}\nwas {old}" for new, old in zip_longest(now, then) if new != old]
    assert not differing, "\n".join([f"{len(differing)} differ", *differing[:20]])


# Streams without an end, the page, and what ends the server.
UNRECORDED = {
    "/admin/models/events",
    "/admin/pulls/events",
    "/admin/stop",
    "/",
    "/page/settings.json",
    "/page/{version}/{name}",
    "/docs",
    "/openapi.json",
}


def test_every_route_is_asked() -> None:
    with running() as live:
        app = live.server.config.app
        routes = [route for route in app.routes if isinstance(route, Route)]  # type: ignore[union-attr]
    assert len(routes) > 30
    asked = [
        {"type": "http", "path": case.path.split("?")[0], "method": case.method, "headers": []} for _, case in CASES
    ]
    routes = [route for route in routes if route.path not in UNRECORDED]
    never = [route for route in routes if not any(route.matches(scope)[0] is Match.FULL for scope in asked)]
    assert not never
