"""What keys have used is added up in the file, whoever adds it, and survives."""

from contextlib import closing
from pathlib import Path

import pytest

from proxy_inference_engine.errors import StoreError
from proxy_inference_engine.server.usage import UsageKeeper
from proxy_inference_engine.store import KeyUsage, Store
from tests.unit.store.stores import Where


async def test_sums_survive_a_restart_and_are_shared(where: Where) -> None:
    with closing(Store.open(where)) as one, closing(Store.open(where)) as other:
        await one.add_usage({"anna": KeyUsage(1, 10, 5, 3), "ben": KeyUsage(1, 1, 1, 1)})
        await other.add_usage({"anna": KeyUsage(2, 20, 0, 4)})
        assert await one.usage() == await other.usage()
    with closing(Store.open(where)) as again:
        assert await again.usage() == {"anna": KeyUsage(3, 30, 5, 7), "ben": KeyUsage(1, 1, 1, 1)}


async def test_only_what_is_new_is_added() -> None:
    used = {"anna": KeyUsage(1, 10, 5, 3)}
    with closing(Store.open(None)) as store:
        keeper = UsageKeeper(used, store)
        assert await keeper.totals() == {"anna": KeyUsage(1, 10, 5, 3)}
        used["anna"].num_tokens += 1
        used["ben"] = KeyUsage(num_requests=1)
        for _ in range(2):
            assert await keeper.totals() == {"anna": KeyUsage(1, 10, 5, 4), "ben": KeyUsage(1)}


async def test_what_could_not_be_stored_is_added_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    used = {"anna": KeyUsage(1, 10, 5, 3)}
    closed = Store.open(None)
    keeper = UsageKeeper(used, closed)
    closed.close()
    with pytest.raises(StoreError):
        await keeper.save()
    used["anna"].num_requests += 1
    await keeper.try_to_save()
    assert "was not stored" in caplog.text
    with closing(Store.open(tmp_path / "store.db")) as store:
        keeper._store = store
        assert await keeper.totals() == {"anna": KeyUsage(2, 10, 5, 3)}
