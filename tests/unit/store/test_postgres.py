"""What only PostgreSQL has: connections that are lost, servers that give no sign, locks, a URL with a secret."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from proxy_inference_engine.errors import QuotaExceeded, StartupError, StoreError
from proxy_inference_engine.store import KeyUsage, NewFrames, Past, Record, ResponseId, Store, StoreLimits
from proxy_inference_engine.store.postgres import database
from proxy_inference_engine.store.postgres.connection import PostgresConnection, Watchdog
from proxy_inference_engine.store.postgres.database import PostgresDatabase
from proxy_inference_engine.store.postgres.run import RenewedRun
from tests.clock import Clock
from tests.polling import HANG_S, until
from tests.unit.store.stores import ids, opened, record
from tests.unit.store.test_orphans import killed_server

Admin = psycopg.Connection[tuple[Any, ...]]
_ROOT = Path(__file__).parents[3]


@pytest.fixture
def admin(postgres_url: str) -> Iterator[Admin]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def chained(id_: str, past: Past | None) -> Record:
    link, earlier = (None, None) if past is None else (past.link, past.items)
    return replace(record(id_), turn=[{"id": f"in-{id_}"}], link=link, earlier=earlier)


def end_all(admin: Admin) -> None:
    """Every connection but this, as a restart of the database does."""
    admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pie'")


async def test_connections_that_were_lost_are_replaced_unseen(postgres_url: str, admin: Admin) -> None:
    async with opened(postgres_url) as store:
        await store.save(record("a"))
        for id_ in ("b", "c"):
            end_all(admin)
            await store.save(record(id_))
            end_all(admin)
            assert id_ in await ids(store)


async def test_a_commit_whose_answer_is_lost_is_not_tried_again(
    postgres_url: str, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have happened: adding once more would count twice."""
    num_commits = 0
    commit = PostgresDatabase.commit

    def lost(self: PostgresDatabase, connection: PostgresConnection) -> None:
        nonlocal num_commits
        num_commits += 1
        commit(self, connection)
        connection.close()
        raise psycopg.OperationalError("the connection is lost")

    async with opened(postgres_url) as store:
        await store.save(record("a"))
        monkeypatch.setattr(PostgresDatabase, "commit", lost)
        with pytest.raises(StoreError) as caught:
            await store.save(record("b"))
        monkeypatch.undo()
        assert (caught.value.status, caught.value.code) == (503, "storage_unavailable") and num_commits == 1
        await store.save(record("c"))
        assert await ids(store, order="asc") == ["a", "b", "c"]


async def test_a_database_that_became_a_standby_is_left_for_the_one_that_writes(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.save(record("a"))
        writing = store._writer._connection
        assert isinstance(writing, PostgresConnection)
        writing.run("SET default_transaction_read_only = on")
        await store.save(record("b"))
        assert writing.is_lost and await ids(store, order="asc") == ["a", "b"]


def test_a_database_that_says_nothing_is_left(postgres_url: str) -> None:
    watchdog = Watchdog(0.0)
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        connection = PostgresConnection(raw)
        watchdog.watch(connection)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT pg_sleep(600)")
        assert connection.is_lost and not connection.in_transaction
    watchdog.close()


async def test_a_lock_of_another_server_is_waited_for_a_while(
    postgres_url: str, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "SETTINGS", "SET lock_timeout = '200ms'")
    async with opened(postgres_url) as store:
        await store.save(record("before"))
        admin.execute("BEGIN")
        admin.execute(f"SELECT pg_advisory_xact_lock({database.lock_of('anna')})".encode())
        with pytest.raises(StoreError) as caught:
            await store.save(record("during"))
        assert (caught.value.status, caught.value.code) == (503, "storage_unavailable")
        await store.save(record("other", "ben"))
        assert await ids(store) == ["before"], "reading goes on"
        admin.execute("COMMIT")
        await store.save(record("after"))
        assert await ids(store) == ["after", "before"]


async def test_what_decides_nothing_waits_for_nobody(postgres_url: str, admin: Admin) -> None:
    """Each server tells what was said four times a second: with a lock on everything they would stand in line."""
    async with opened(postgres_url) as store:
        await store.save(record("x", status="queued", output=[]))
        admin.execute("BEGIN")
        admin.execute("SELECT pg_advisory_xact_lock_shared(1)")  # as any writing server does
        admin.execute(f"SELECT pg_advisory_xact_lock({database.lock_of('anna')})".encode())
        heard = await store.add_said({ResponseId("anna", "x"): NewFrames(0, ["a", "b"])})
        assert heard.unfinished == {("anna", "x")} and not heard.cancelled
        await store.add_usage({"anna": KeyUsage(1)})
        said = await store.said("anna", "x", 1)
        assert said is not None and said.frames == ["b"]
        admin.execute("COMMIT")


def test_a_full_disk_is_named(postgres_url: str) -> None:
    shown = PostgresDatabase(postgres_url).shown(psycopg.errors.DiskFull("no space left on device"))
    assert isinstance(shown, StoreError) and shown.code == "storage_full" and "device" not in shown.message


async def test_many_servers_never_pass_the_limit_of_a_key_together(postgres_url: str) -> None:
    limits = StoreLimits(max_rows=40)
    stores = [Store.open(postgres_url, limits=limits) for _ in range(3)]
    try:
        saves = [store.save(record(f"{n}-{m}")) for n, store in enumerate(stores) for m in range(30)]
        outcomes = await asyncio.gather(*saves, return_exceptions=True)
        refused = [each for each in outcomes if each is not None]
        assert len(refused) == 50 and {type(each) for each in refused} == {QuotaExceeded}
        assert len(await ids(stores[0], limit=100)) == 40
    finally:
        for store in stores:
            store.close()


async def test_chains_that_several_servers_build_and_delete(postgres_url: str, admin: Admin) -> None:
    """Whatever comes between, the counts are right, and a response that is there has all that it builds on."""
    stores = [Store.open(postgres_url) for _ in range(2)]

    async def use(number: int, store: Store) -> None:
        for turn in range(40):
            id_ = f"{number}-{turn}"
            others = await ids(store, limit=5)
            previous = others[turn % len(others)] if others else None
            past = None if previous is None else await store.past("response", "anna", previous)
            await store.save(chained(id_, past))
            if turn % 3 == 2:
                await store.delete("response", "anna", others[0])

    try:
        await asyncio.gather(*(use(number, stores[number % 2]) for number in range(4)))
        for id_ in await ids(stores[0], limit=1000):
            past = await stores[1].past("response", "anna", id_)
            assert past is not None and past.items[-1] == {"id": f"in-{id_}"}
    finally:
        for store in stores:
            store.close()
    counted = admin.execute("SELECT num_rows FROM owners").fetchone()
    assert counted == admin.execute("SELECT count(*) FROM objects WHERE coalesce(body, turn) IS NOT NULL").fetchone()


def test_who_renews_is_alive_and_who_was_away_judges_nobody(postgres_url: str) -> None:
    with closing(Store.open(postgres_url)), closing(PostgresDatabase(postgres_url).connect()) as connection:
        clock, other_clock = Clock(), Clock()
        run, other = RenewedRun(10.0, clock), RenewedRun(10.0, other_clock)
        run.begin(connection)
        other.begin(connection)
        connection.execute("UPDATE runs SET renewed_at = renewed_at - 11 WHERE id = ?", (other.id,))
        assert not run.is_dead(connection, other.id), "it has just come"
        assert other.id in run.alive(connection)
        assert run.is_dead(connection, "never there")
        for _ in range(4):
            clock.now += 3
            assert run.is_due
            run.renew(connection)
        assert run.is_dead(connection, other.id) and not run.is_dead(connection, run.id)
        other.renew(connection)
        assert not run.is_dead(connection, other.id)
        connection.execute("UPDATE runs SET renewed_at = renewed_at - 11 WHERE id = ?", (other.id,))
        clock.now += 11  # it was away itself
        run.renew(connection)
        assert not run.is_dead(connection, other.id) and other.id in run.alive(connection)
        for _ in range(4):
            clock.now += 3
            run.renew(connection)
        assert other.id not in run.alive(connection)
        other.renew(connection)  # it was only asleep
        assert other.id in run.alive(connection)


async def test_responses_of_a_killed_server_fail_when_its_time_is_over(postgres_url: str, admin: Admin) -> None:
    limits = StoreLimits(run_seconds=2.0)
    async with opened(postgres_url, limits, time.time) as store:
        await store.save(record("ours", status="in_progress"))
        killed_server(postgres_url)
        admin.execute("UPDATE runs SET renewed_at = extract(epoch FROM clock_timestamp())")  # all that took its time
        found = await store.load("response", "anna", "x")
        assert found is not None and found.status == "queued", "its server may only be slow"
        async with asyncio.timeout(HANG_S):
            while found is not None and found.status == "queued":
                await asyncio.sleep(0.05)
                found = await store.load("response", "anna", "x")
        assert found is not None and found.status == found.body["status"] == "failed"
        ours = await store.load("response", "anna", "ours")
        assert ours is not None and ours.status == "in_progress", "this server lives"


async def test_what_others_gave_up_is_not_completed_later(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.save(record("x", status="queued", output=[]))
        await store.give_up("anna", "x")
        with pytest.raises(StoreError, match="given up"):
            await store.save(record("x"))
        found = await store.load("response", "anna", "x")
        assert found is not None and found.status == "failed"


async def test_ids_that_the_database_has_no_letters_for(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        for id_ in ("a\0b", "ü🙂", "a'b\\", "%s :id ?"):
            assert await store.load("response", "anna", id_) is None
            await store.save(record(id_))
            found = await store.load("response", "anna", id_)
            assert found is not None and found.body["id"] == id_
            assert await store.delete("response", "anna", id_)


async def test_a_store_purges_by_itself(postgres_url: str, admin: Admin) -> None:
    clock = Clock()
    async with opened(postgres_url, clock=clock) as store:
        for number in range(100):
            await store.save(record(f"r{number}"))
    clock.now += StoreLimits().ttl_seconds
    async with opened(postgres_url, clock=clock):
        await until(lambda: admin.execute("SELECT count(*) FROM objects").fetchone() == (0,))


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://anna:secret@127.0.0.1:1/shop", "127.0.0.1, database shop"),
        ("postgresql://anna:secret@[/shop", "PIE_STORE_URL"),
        ("mysql://anna:secret@127.0.0.1/shop", "postgresql://user@host/database"),
    ],
)
def test_a_database_that_cannot_be_used_is_named_without_its_secret(url: str, told: str) -> None:
    with pytest.raises(StartupError) as caught:
        Store.open(url)
    assert told in caught.value.message and "secret" not in caught.value.message and "\n" not in caught.value.message


def test_a_file_needs_nothing_of_it(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from proxy_inference_engine.store import Store\n"
        "Store.open(Path(sys.argv[1])).close(); assert 'psycopg' not in sys.modules\n"
        "sys.modules['psycopg'] = None\n"
        "try: Store.open('postgresql://127.0.0.1/x')\n"
        "except Exception as error: print(error)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "store.db")]
    done = subprocess.run(command, cwd=_ROOT, env={"PYTHONPATH": "src"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "pip install 'proxy-inference-engine[postgres]'" in done.stdout
