"""Responses that build on one another: each stores its own turn, and the whole is found for as long as it is needed."""

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from proxy_inference_engine.errors import ContextLengthExceeded, QuotaExceeded
from proxy_inference_engine.store import NUM_EARLIER, Link, Past, Record, Store, StoreLimits, chains
from proxy_inference_engine.store.objects import PURGED_ROWS, Key, Objects
from proxy_inference_engine.store.sqlite.database import connect
from tests.clock import Clock
from tests.unit.store.stores import Where, opened


def turn(*names: str) -> list[dict[str, Any]]:
    return [{"id": name} for name in names]


def response(id_: str, previous: str | Link | None = None, *, owner: str = "anna") -> Record:
    link = Link(previous) if isinstance(previous, str) else previous
    return Record("response", id_, owner, 100, {"id": id_}, {}, turn=turn(f"in-{id_}", f"out-{id_}"), link=link)


def said(*ids: str) -> list[dict[str, Any]]:
    return [item for id_ in ids for item in turn(f"in-{id_}", f"out-{id_}")]


async def past(store: Store, id_: str, owner: str = "anna") -> list[dict[str, Any]] | None:
    found = await store.past("response", owner, id_)
    return None if found is None else found.items


async def test_a_tree_of_responses(store: Store) -> None:
    for id_, previous in (("a", None), ("b", "a"), ("c", "b"), ("d", "b")):
        await store.save(response(id_, previous))
    for id_, whole in (("a", "a"), ("b", "ab"), ("c", "abc"), ("d", "abd")):
        assert await store.past("response", "anna", id_) == Past(said(*whole), Link(id_), "completed")
    assert await store.load("response", "anna", "c") == response("c", "b"), "a record holds its own turn only"
    assert await past(store, "x") is None
    assert await past(store, "c", "ben") is None


async def test_owners_chains_do_not_meet(store: Store) -> None:
    await store.save(response("a", owner="ben"))
    await store.save(response("b", "a"))
    assert await past(store, "b") is None, "what it builds on is another's"


async def test_what_is_deleted_while_another_is_made_of_it_is_held_by_that(store: Store) -> None:
    for id_, previous in (("a", None), ("b", "a")):
        await store.save(response(id_, previous))
    making = replace(response("c", "b"), earlier=await past(store, "b"))
    await store.delete("response", "anna", "b")
    await store.delete("response", "anna", "a")
    await store.save(making)
    assert await past(store, "b") is None and await past(store, "c") == said(*"abc")
    await store.save(response("d", "c"))
    assert await past(store, "d") == said(*"abcd")
    assert await store.load("response", "anna", "c") == Record(
        "response", "c", "anna", 100, {"id": "c"}, {NUM_EARLIER: 4}, turn=said(*"abc")
    )
    other = replace(response("e", "d"), earlier=await past(store, "d"))
    await store.save(other)
    assert await store.load("response", "anna", "e") == response("e", "d"), "what is there is not stored again"


@pytest.mark.parametrize("deleted", ["a", "b", "ab", "ba"])
async def test_what_others_build_on_stays_for_them(store: Store, deleted: str) -> None:
    for id_, previous in (("a", None), ("b", "a"), ("c", "b")):
        await store.save(response(id_, previous))
    for id_ in deleted:
        assert await store.delete("response", "anna", id_)
        assert not await store.delete("response", "anna", id_)
        assert await store.load("response", "anna", id_) is None and await past(store, id_) is None
        await store.save(response(id_))
        assert await store.load("response", "anna", id_) is None, "a late write brought it back"
    assert await past(store, "c") == said("a", "b", "c")
    await store.save(response("d", "c"))
    assert await past(store, "d") == said("a", "b", "c", "d")


async def test_a_row_counts_until_nobody_needs_it(anywhere: Where) -> None:
    async with opened(anywhere, StoreLimits(max_rows=3)) as store:
        for id_, previous in (("a", None), ("b", "a"), ("c", "b")):
            await store.save(response(id_, previous))
        for id_ in "ab":
            await store.delete("response", "anna", id_)
            with pytest.raises(QuotaExceeded):
                await store.save(response("d"))
        await store.delete("response", "anna", "c")  # and nothing is left of the others
        for id_ in "def":
            await store.save(response(id_))
        with pytest.raises(QuotaExceeded):
            await store.save(response("g"))


async def test_a_chain_lives_as_long_as_its_last() -> None:
    clock = Clock()
    limits = StoreLimits(ttl_seconds=60)
    objects = Objects(limits, clock)
    with closing(connect(None)) as connection:
        for id_, previous in (("a", None), ("b", "a"), ("c", "b")):
            objects.put(connection, response(id_, previous), "")
            clock.now += 30
        while objects.purge(connection):
            pass
        found = objects.past(connection, Key("response", "anna", "c"))
        assert objects.get(connection, Key("response", "anna", "a")) is None
        assert found is not None and found.items == said("a", "b", "c")
        assert connection.execute("SELECT num_rows FROM owners").fetchone() == (3,)
        clock.now += 60
        while objects.purge(connection):
            pass
        assert connection.execute("SELECT count(*) FROM objects").fetchone() == (0,)
        assert connection.execute("SELECT num_rows FROM owners").fetchone() == (0,)


@pytest.mark.parametrize("length", [1, PURGED_ROWS, PURGED_ROWS + 1, 5 * PURGED_ROWS])
def test_a_long_chain_goes_in_small_steps(length: int) -> None:
    clock = Clock()
    objects = Objects(StoreLimits(), clock)
    with closing(connect(None)) as connection:
        for number in range(length):
            objects.put(connection, response(f"r{number}", f"r{number - 1}" if number else None), "")
        for number in range(length):
            before = connection.total_changes
            assert objects.remove(connection, Key("response", "anna", f"r{number}"))
            assert connection.total_changes - before <= 2 * PURGED_ROWS + 1  # a row and its count, and the rest marked
        while True:
            before = connection.total_changes
            has_more = objects.purge(connection)
            assert connection.total_changes - before <= 2 * PURGED_ROWS + 1
            if not has_more:
                break
        assert connection.execute("SELECT count(*) FROM objects WHERE turn IS NOT NULL").fetchone() == (0,)
        assert connection.execute("SELECT num_rows FROM owners").fetchone() == (0,)


async def test_a_response_in_a_conversation_builds_on_what_was_there_then(store: Store) -> None:
    conversation = Record("conversation", "conv", "anna", 100, {"id": "conv"}, {})
    await store.save(conversation, conversation="conv", items=turn("m", "n"))
    there = await store.past("conversation", "anna", "conv")
    assert there is not None and there.items == turn("m", "n")
    await store.add_items("anna", "conv", turn("later"))
    await store.save(response("a", there.link), conversation="conv", items=said("a"))
    await store.save(response("b", "a"))
    assert await past(store, "b") == [*turn("m", "n"), *said("a", "b")]
    await store.delete_item("anna", "conv", "m")
    assert await past(store, "b") == [*turn("n"), *said("a", "b")]
    assert await store.past("conversation", "ben", "conv") is None
    await store.delete("conversation", "anna", "conv")
    assert await past(store, "b") is None
    assert await store.past("conversation", "anna", "conv") is None


async def test_a_history_has_its_bounds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.save(Record("conversation", "conv", "anna", 100, {}, {}), conversation="conv", items=turn("m", "n"))
    for number in range(20):
        await store.save(response(f"r{number:02}", f"r{number - 1:02}" if number else None))
    assert len(await past(store, "r19") or []) == 40
    monkeypatch.setattr(chains, "MAX_RESPONSES", 19)
    assert len(await past(store, "r18") or []) == 38
    with pytest.raises(ContextLengthExceeded):
        await past(store, "r19")
    monkeypatch.setattr(chains, "MAX_BYTES", 10)
    with pytest.raises(ContextLengthExceeded):
        await past(store, "r00")
    with pytest.raises(ContextLengthExceeded):
        await store.past("conversation", "anna", "conv")
