from collections.abc import Iterator

import httpx
import pytest
from openai import OpenAI

from tests.api.running import Running, running


@pytest.fixture(scope="session")
def server() -> Iterator[Running]:
    """One server for all tests that leave it as they found it."""
    with running() as live:
        yield live
        live.wait_idle()


@pytest.fixture
def client(server: Running) -> Iterator[OpenAI]:
    """The official client; every answer is validated against its types."""
    with server.openai() as openai:
        yield openai


@pytest.fixture
def http(server: Running) -> Iterator[httpx.Client]:
    with server.http() as plain:
        yield plain
