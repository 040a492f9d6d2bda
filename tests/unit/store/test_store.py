"""What is stored comes back, to its owner only, in a stable order, for as long as it should."""

import asyncio
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy_inference_engine.errors import NotFound, QuotaExceeded, StoreError, TooLarge
from proxy_inference_engine.store import ObjectKind, Store, StoreLimits
from tests.clock import Clock
from tests.unit.store.stores import Where, ids, opened, record

KINDS: tuple[ObjectKind, ...] = ("response", "conversation", "chat.completion")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_record_comes_back_as_it_was(store: Store, kind: ObjectKind) -> None:
    saved = record(
        "x", kind=kind, status="incomplete", text="ünïcode \0 \u2028 🙂 \ud83d", nested=[{"a": None, "b": 1.5}]
    )
    await store.save(saved)
    assert await store.load(kind, "anna", "x") == saved
    for other in KINDS:
        assert (await store.load(other, "anna", "x") is None) == (other != kind)


async def test_saving_again_replaces_and_keeps_the_place(store: Store) -> None:
    for id_ in ("a", "b", "c"):
        await store.save(record(id_, number=1))
    await store.save(record("a", number=2))
    found = await store.load("response", "anna", "a")
    assert found is not None and found.body["number"] == 2
    assert await ids(store) == ["c", "b", "a"]


async def test_owners_do_not_meet(store: Store) -> None:
    await store.save(record("x", "anna", number=1))
    await store.save(record("x", "ben", number=2))
    await store.save(record("conv", "anna", kind="conversation"))
    await store.add_items("anna", "conv", [{"id": "m"}])
    assert await store.load("response", "carl", "x") is None
    assert not await store.delete("response", "carl", "x")
    assert await ids(store, owner="carl") == []
    for owner, number in (("anna", 1), ("ben", 2)):
        found = await store.load("response", owner, "x")
        assert found is not None and found.body["number"] == number
    assert await store.load_item("ben", "conv", "m") is None
    assert not await store.delete_item("ben", "conv", "m")
    with pytest.raises(NotFound):
        await store.list_items("ben", "conv")
    with pytest.raises(NotFound):
        await store.add_items("ben", "conv", [{"id": "n"}])
    with pytest.raises(NotFound):
        await store.save(record("y", "ben"), conversation="conv", items=[{"id": "n"}])
    assert await store.load("response", "ben", "y") is None, "half of a refused write was kept"
    with pytest.raises(NotFound):
        await store.list("response", "carl", after="x")


async def test_deleted_is_gone_and_a_late_write_does_not_bring_it_back(store: Store) -> None:
    await store.save(record("x", status="in_progress"))
    assert await store.delete("response", "anna", "x")
    assert not await store.delete("response", "anna", "x")
    await store.save(record("x"))
    assert await store.load("response", "anna", "x") is None
    assert await ids(store) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_metadata_is_changed_where_there_is_an_object(store: Store, kind: ObjectKind) -> None:
    await store.save(record("x", kind=kind, metadata={"a": "b"}, number=1))
    assert await store.change_metadata(kind, "ben", "x", {"c": "d"}) is None
    assert await store.change_metadata(kind, "anna", "x", {"c": "d"}) == {
        "id": "x",
        "metadata": {"c": "d"},
        "number": 1,
    }
    found = await store.load(kind, "anna", "x")
    assert found is not None and found == record("x", kind=kind, metadata={"c": "d"}, number=1)
    assert await ids(store, kind, metadata={"c": "d"}) == ["x"] and await ids(store, kind, metadata={"a": "b"}) == []
    await store.delete(kind, "anna", "x")
    assert await store.change_metadata(kind, "anna", "x", {"e": "f"}) is None
    assert await ids(store, kind) == []


async def test_other_metadata_is_a_new_beginning(where: Where) -> None:
    clock = Clock()
    async with opened(where, StoreLimits(ttl_seconds=60), clock) as store:
        await store.save(record("x"))
        clock.now += 59
        assert await store.change_metadata("response", "anna", "x", {}) is not None
        clock.now += 59
        assert await ids(store) == ["x"]
        clock.now += 1
        assert await store.change_metadata("response", "anna", "x", {}) is None
        assert await ids(store) == []


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
async def test_pages_together_are_the_list(store: Store, order: Any, limit: int) -> None:
    names = [f"r{number}" for number in range(7)]
    for name in names:
        await store.save(record(name))
    seen: list[str] = []
    while True:
        page = await store.list("response", "anna", after=seen[-1] if seen else None, limit=limit, order=order)
        seen += [found.id for found in page.records]
        if not page.has_more:
            break
        assert len(page.records) == limit
    assert seen == (names if order == "asc" else names[::-1])


async def test_pages_are_stable_while_the_list_changes(store: Store) -> None:
    for number in range(10):
        await store.save(record(f"r{number}"))
    first = await ids(store, limit=4)
    assert first == ["r9", "r8", "r7", "r6"]
    await store.save(record("new"))
    await store.save(record("r2", changed=True))
    for id_ in first:  # a client that deletes what it has read, then asks for what comes after it
        await store.delete("response", "anna", id_)
    assert await ids(store, limit=4, after="r6") == ["r5", "r4", "r3", "r2"]
    assert await ids(store, limit=4, after="r2") == ["r1", "r0"]


async def test_lists_can_be_filtered(store: Store) -> None:
    for number in range(6):
        metadata = {"parity": str(number % 2), "odd \"key'.$[0]": "x" if number > 2 else "y"}
        await store.save(record(f"r{number}", kind="chat.completion", model=f"m{number % 3}", metadata=metadata))
    await store.save(record("bare", kind="chat.completion", metadata=None))
    assert await ids(store, "chat.completion", model="m1") == ["r4", "r1"]
    assert await ids(store, "chat.completion", metadata={"parity": "1"}) == ["r5", "r3", "r1"]
    assert await ids(store, "chat.completion", metadata={"parity": "1", "odd \"key'.$[0]": "x"}) == ["r5", "r3"]
    assert await ids(store, "chat.completion", metadata={"parity": "1"}, model="m0") == ["r3"]
    assert await ids(store, "chat.completion", metadata={"nothing": ""}) == []
    page = await store.list("chat.completion", "anna", metadata={"parity": "0"}, limit=2)
    assert [found.id for found in page.records] == ["r4", "r2"] and page.has_more


async def test_items_of_a_conversation(store: Store) -> None:
    items = [{"id": f"m{number}", "text": str(number)} for number in range(5)]
    await store.save(record("conv", kind="conversation"), conversation="conv", items=items[:2])
    await store.add_items("anna", "conv", items[2:])
    assert (await store.list_items("anna", "conv"))[:2] == (items, False)
    assert (await store.list_items("anna", "conv", order="desc", limit=2))[:2] == (items[:2:-1], True)
    assert await store.load_item("anna", "conv", "m3") == items[3]
    assert await store.delete_item("anna", "conv", "m3")
    assert not await store.delete_item("anna", "conv", "m3")
    assert await store.load_item("anna", "conv", "m3") is None
    assert (await store.list_items("anna", "conv", after="m3"))[:2] == (items[4:], False)
    await store.add_items("anna", "conv", [{"id": "m1", "text": "again"}, {"id": "m3", "text": "back"}])
    found = await store.list_items("anna", "conv")
    assert [(item["id"], item["text"]) for item in found.items] == [
        ("m0", "0"), ("m1", "again"), ("m2", "2"), ("m4", "4"), ("m3", "back")
    ]  # fmt: skip
    with pytest.raises(NotFound) as caught:
        await store.list_items("anna", "conv", after="nothing")
    assert caught.value.param == "after"


async def test_a_conversation_takes_its_items_with_it(store: Store) -> None:
    for name in ("one", "two"):
        await store.save(record(name, kind="conversation"), conversation=name, items=[{"id": "m"}])
    assert await store.delete("conversation", "anna", "one")
    assert await store.load_item("anna", "one", "m") is None
    assert await store.load_item("anna", "two", "m") == {"id": "m"}
    with pytest.raises(NotFound):
        await store.add_items("anna", "one", [{"id": "n"}])


async def test_what_is_not_written_again_expires(where: Where) -> None:
    clock = Clock()
    async with opened(where, StoreLimits(ttl_seconds=60), clock) as store:
        for id_ in ("old", "kept"):
            await store.save(record(id_))
        await store.save(record("conv", kind="conversation"))
        clock.now += 59
        assert await ids(store) == ["kept", "old"]
        await store.save(record("kept", number=2))
        await store.add_items("anna", "conv", [{"id": "m"}])
        clock.now += 1
        assert await ids(store) == ["kept"]
        assert await store.load("response", "anna", "old") is None
        assert not await store.delete("response", "anna", "old")
        assert await store.load_item("anna", "conv", "m") == {"id": "m"}
        clock.now += 60
        assert await ids(store) == []
        assert await store.load_item("anna", "conv", "m") is None
        with pytest.raises(NotFound):
            await store.list_items("anna", "conv")


async def test_a_clock_that_is_put_back_and_forth_changes_nothing(where: Where) -> None:
    """Order, cursors and quotas go by what came first; only the time itself ends anything."""
    clock = Clock(now=10_000.0)
    async with opened(where, StoreLimits(ttl_seconds=60, max_rows=4), clock) as store:
        await store.save(record("a"))
        await store.save(record("conv", kind="conversation"))
        clock.now -= 3600
        await store.save(record("b"))
        await store.add_items("anna", "conv", [{"id": "m"}])
        assert await ids(store) == ["b", "a"]
        page = await store.list("response", "anna", after="b", limit=1)
        assert [each.id for each in page.records] == ["a"]
        with pytest.raises(QuotaExceeded):
            await store.save(record("c"))
        assert await store.load_item("anna", "conv", "m") == {"id": "m"}
        assert await store.delete("response", "anna", "b")
        clock.now += 3600 + 59
        await store.save(record("d"))
        assert await ids(store) == ["d", "a"]


async def test_a_quota_counts_rows_of_one_owner(anywhere: Where) -> None:
    async with opened(anywhere, StoreLimits(max_rows=3)) as store:
        await store.save(record("a"))
        await store.save(record("conv", kind="conversation"))
        with pytest.raises(QuotaExceeded) as caught:
            await store.add_items("anna", "conv", [{"id": "m"}, {"id": "n"}])
        assert (caught.value.status, caught.value.code) == (429, "insufficient_quota")
        assert (await store.list_items("anna", "conv"))[:2] == ([], False), "half of a refused write was kept"
        await store.add_items("anna", "conv", [{"id": "m"}])
        with pytest.raises(QuotaExceeded):
            await store.save(record("b"))
        await store.save(record("b", "ben"))
        await store.save(record("a", changed=True))
        await store.delete("conversation", "anna", "conv")
        await store.save(record("b"))
        await store.save(record("c"))
        with pytest.raises(QuotaExceeded):
            await store.save(record("d"))
        await store.delete("response", "anna", "a")
        await store.save(record("d"))


async def test_an_object_may_be_so_large_and_no_larger(anywhere: Where) -> None:
    async with opened(anywhere, StoreLimits(max_bytes=1000)) as store:
        small = record("x", text="")
        size = len('{"id":"x","text":""}') + len('{"input":["x"]}')
        await store.save(replace(small, body={"id": "x", "text": "ü" * ((1000 - size) // 2)}))
        with pytest.raises(TooLarge):
            await store.save(replace(small, body={"id": "x", "text": "ü" * ((1000 - size) // 2 + 1)}))
        found = await store.load("response", "anna", "x")
        assert found is not None and found.body["text"].startswith("üü"), "the refused write left a trace"
        await store.save(record("conv", kind="conversation"))
        with pytest.raises(TooLarge):
            await store.add_items("anna", "conv", [{"id": "m", "text": "x" * 1000}])


async def test_a_cancelled_caller_does_not_take_the_write_with_it(store: Store) -> None:
    task = asyncio.ensure_future(store.save(record("x")))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.save(record("y"))
    assert await ids(store) == ["y", "x"]


async def test_200_writers_and_readers_at_once(where: Where) -> None:
    async def use(store: Store, number: int) -> None:
        owner, id_ = f"owner{number % 7}", f"r{number}"
        for version in range(3):
            await store.save(record(id_, owner, version=version))
            found = await store.load("response", owner, id_)
            assert found is not None and found.body["version"] == version
        await store.list("response", owner, limit=5)

    async with opened(where) as store:
        await asyncio.gather(*(use(store, number) for number in range(200)))
        assert sum([len(await ids(store, owner=f"owner{number}", limit=100)) for number in range(7)]) == 200


async def test_a_closed_store_says_so(store: Store) -> None:
    await store.save(record("x"))
    store.close()
    for call in (store.save(record("y")), store.load("response", "anna", "x")):
        with pytest.raises(StoreError):
            await call


async def test_files_are_private(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "store.db"
    async with opened(path) as store:
        await store.save(record("x"))
        await store.load("response", "anna", "x")
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        modes = {file.name.partition("-")[0]: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert modes == {"store.db": 0o600, "store.db.run": 0o600, "store.db.reserve": 0o600}
    left = {file.name for file in path.parent.iterdir()}
    assert left == {"store.db", "store.db.reserve"}, "a clean end leaves the file, and room to delete from it"
