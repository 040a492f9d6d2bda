"""The kinds of stores that the same tests run on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy_inference_engine.store import Store
from tests.unit.store.stores import Where, opened


@pytest.fixture(params=["file", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Where:
    """A store that outlives its server."""
    return tmp_path / "store.db" if request.param == "file" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["file", "memory", "postgres"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Where:
    match request.param:
        case "file":
            return tmp_path / "store.db"
        case "memory":
            return None
        case _:
            return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def store(anywhere: Where) -> AsyncIterator[Store]:
    async with opened(anywhere) as store:
        yield store
