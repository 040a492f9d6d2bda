"""Where a prompt goes, who is left out, and when it is back."""

import asyncio

import pytest

from proxy_inference_engine.far.connections import FarAddress
from proxy_inference_engine.far.engines import Engines, FarEngine, KnownPrefixes, prefix_keys
from proxy_inference_engine.far.monitor import read_load
from proxy_inference_engine.types import Limits, Request, Sampling
from tests.clock import Clock


def request(*starts: int, tenant: str = "me", length: int = 64) -> Request:
    """A prompt of blocks, each of one token."""
    ids = tuple(token for start in starts for token in [start] * length)
    return Request("r", tenant, ids, Sampling(seed=1), Limits(9))


def engines(num: int) -> Engines:
    addresses = [FarAddress("127.0.0.1", 1000 + number, False, "") for number in range(num)]
    made = [FarEngine(address, {}, clock=lambda: 0.0) for address in addresses]
    for engine in made:
        engine.admit()
    return Engines(made)


async def test_the_least_busy_one_is_chosen() -> None:
    several = engines(3)
    several.all[0].work, several.all[1].work = 5.0, 1.0
    assert several.choose(request(1)) is several.all[2]
    assert several.choose(request(2), [several.all[2]]) is several.all[1]


async def test_a_conversation_stays_where_its_beginning_is_known() -> None:
    several = engines(3)
    first = several.choose(request(1, 2))
    assert first is not None
    first.work = 4.0
    assert several.choose(request(1, 2, 3)) is first, "it knows two blocks of three"
    assert several.choose(request(9)) is not first
    assert several.choose(request(1, 2, tenant="you")) is not first, "another tenant's cache is another"
    first.work = 100.0
    assert several.choose(request(1, 2, 3)) is not first, "it has too much to do"


async def test_a_prompt_goes_to_whoever_knows_most_of_it() -> None:
    several = engines(2)
    known = KnownPrefixes()
    known.note(prefix_keys(request(1)), several.all[0])
    known.note(prefix_keys(request(1, 2))[1:], several.all[1])
    assert known.find(prefix_keys(request(1, 3))) is several.all[0]
    assert known.find(prefix_keys(request(1, 2, 3))) is several.all[1]
    assert known.find(prefix_keys(request(4))) is None


async def test_what_is_known_is_bounded() -> None:
    (engine,) = engines(1).all
    known = KnownPrefixes(max_known=3)
    for start in range(10):
        known.note(prefix_keys(request(start)), engine)
    assert sum(known.find(prefix_keys(request(start))) is engine for start in range(10)) == 3


async def test_nobody_is_left() -> None:
    several = engines(2)
    for engine in several.all:
        engine.eject("it broke")
    assert several.choose(request(1)) is None and not several.up


async def test_who_fails_rests_longer_each_time() -> None:
    clock = Clock()
    engine = FarEngine(FarAddress("127.0.0.1", 1, False, ""), {}, clock=clock)
    rests = []
    for _ in range(9):
        engine.eject("it broke")
        began = clock()
        while not engine.is_up:
            clock.now += 0.25
            engine.admit()
        rests.append(clock() - began)
    assert rests == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    engine.succeed()
    engine.eject("it broke")
    clock.now += 0.5
    engine.admit()
    assert engine.is_up


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://10.0.0.5:8000", "http://10.0.0.5:8000"),
        ("http://far.local", "http://far.local:80"),
        ("https://far.local/vllm/v1/", "https://far.local:443/vllm"),
        ("http://[::1]:9", "http://[::1]:9"),
    ],
)
def test_a_url_is_an_address(url: str, shown: str) -> None:
    assert str(FarAddress.parse(url)) == shown


@pytest.mark.parametrize(
    "url", ["10.0.0.5:8000", "ftp://x", "http://", "http://x/?a=1", "http://me:pw@x", "http://x:y"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        FarAddress.parse(url)


def test_what_vllm_says_of_its_load() -> None:
    text = (
        "# HELP vllm:num_requests_running Number of requests.\n"
        'vllm:num_requests_running{engine="0",model_name="a"} 3.0\n'
        'vllm:num_requests_running{engine="1",model_name="a"} 2.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="a"} 7.0\n'
        'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="a"} 0.5\n'
    )
    assert read_load(text) == (5, 7)
    assert read_load("") == (0, 0)


def test_an_engine_needs_no_event_loop_to_be_made() -> None:
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    assert not FarEngine(FarAddress("127.0.0.1", 1, False, ""), {}).is_up
