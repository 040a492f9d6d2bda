"""A row that the disk changed is an error for whoever asks for it, and for nobody else."""

from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from proxy_inference_engine.errors import StorageCorrupt
from proxy_inference_engine.store import Store
from proxy_inference_engine.store.sqlite.database import connect
from tests.unit.store.stores import Where, ids, opened, record

DAMAGE = [b"", b"{", b"\xff\xfe", b'"text"', b"[]", b"[" * 100_000]


def change(where: Where, column: str, id_: str, value: object) -> None:
    """Behind the store's back."""
    if isinstance(where, str):
        with psycopg.connect(where, autocommit=True) as database:
            database.execute(f"UPDATE objects SET {column} = %s WHERE id = %s".encode(), (value, id_))
        return
    with closing(connect(where)) as connection:
        connection.execute(f"UPDATE objects SET {column} = ? WHERE id = ?", (value, id_))


@pytest.mark.parametrize("column", ["body", "extra"])
@pytest.mark.parametrize("value", DAMAGE, ids=lambda value: str(value)[:12])
async def test_a_damaged_object_is_named_and_can_be_deleted(where: Where, column: str, value: object) -> None:
    await check_damaged(where, column, value)


@pytest.mark.parametrize("value", ["text", 5])
async def test_a_value_of_another_type_too(tmp_path: Path, value: object) -> None:
    """A column of PostgreSQL has one type."""
    for column in ("body", "extra"):
        await check_damaged(tmp_path / f"{column}.db", column, value)


async def check_damaged(where: Where, column: str, value: object) -> None:
    async with opened(where) as store:
        for id_ in ("a", "b", "c"):
            await store.save(record(id_))
        change(where, column, "b", value)
        with pytest.raises(StorageCorrupt, match="'b' is damaged") as caught:
            await store.load("response", "anna", "b")
        assert (caught.value.status, caught.value.code) == (500, "storage_corrupt")
        assert await ids(store, order="asc") == ["a", "c"], "a list shows the others"
        assert await store.delete("response", "anna", "b")
        assert await store.load("response", "anna", "b") is None


async def test_a_page_goes_on_behind_what_is_damaged(where: Where) -> None:
    """An empty page with more behind it would have no id to go on after."""
    async with opened(where) as store:
        for number in range(6):
            await store.save(record(f"r{number}"))
        for number in range(1, 5):
            change(where, "body", f"r{number}", b"{")
        first = await store.list("response", "anna", limit=1, order="asc")
        assert [one.id for one in first.records] == ["r0"] and first.has_more
        second = await store.list("response", "anna", limit=1, order="asc", after="r0")
        assert [one.id for one in second.records] == ["r5"] and not second.has_more


async def test_damaged_metadata_hides_one_object_from_filters(where: Where) -> None:
    async with opened(where) as store:
        for id_ in ("a", "b"):
            await store.save(record(id_, metadata={"k": "v"}))
        change(where, "metadata", "a", "{")
        assert await ids(store, metadata={"k": "v"}) == ["b"]


async def test_metadata_of_a_damaged_object_cannot_be_changed(where: Where) -> None:
    async with opened(where) as store:
        await store.save(record("a"))
        change(where, "body", "a", b"{")
        with pytest.raises(StorageCorrupt):
            await store.change_metadata("response", "anna", "a", {})
        await store.save(record("b"))


async def conversation(store: Store, *items: str) -> None:
    await store.save(record("conv", kind="conversation"))
    await store.add_items("anna", "conv", [{"id": id_} for id_ in items])


async def test_a_damaged_item_of_a_conversation(where: Where) -> None:
    async with opened(where) as store:
        await conversation(store, "i", "j")
        change(where, "body", "i", b"{")
        assert [item["id"] for item in (await store.list_items("anna", "conv")).items] == ["j"]
        for call in (store.load_item("anna", "conv", "i"), store.past("conversation", "anna", "conv")):
            with pytest.raises(StorageCorrupt, match="'i' is damaged"):
                await call
        assert await store.delete_item("anna", "conv", "i")
        past = await store.past("conversation", "anna", "conv")
        assert past is not None and past.items == [{"id": "j"}]
