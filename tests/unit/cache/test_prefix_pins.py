"""Texts that are to be kept for a while: others give way first, as long as there are some."""

import pytest

from tests.clock import Clock
from tests.unit.cache.text_cache import Cache, ids_of


@pytest.mark.parametrize("can_splice", [True, False])
def test_what_is_pinned_gives_way_last_and_only_for_a_while(can_splice: bool) -> None:
    clock = Clock(0.0)
    cache = Cache(10, can_splice=can_splice, clock=clock)
    cache.insert("first")
    cache.real.pin("a", ids_of("first"), 60.0)
    cache.insert("other")
    cache.insert("third")  # one has to go, and the oldest is pinned
    assert [cache.match(text) for text in ("first", "other", "third")] == ["first", "", "third"]
    cache.match("first")
    clock.sleep(61)
    cache.match("third")
    cache.insert("other")
    assert [cache.match(text) for text in ("first", "other", "third")] == ["", "other", "third"]


def test_a_pin_holds_up_nobody_who_needs_the_room() -> None:
    cache = Cache(5, clock=Clock(0.0))
    cache.insert("first")
    cache.real.pin("a", ids_of("first"), 60.0)
    cache.insert("other")
    assert cache.match("other") == "other" and cache.match("first") == ""


def test_both_parts_of_what_is_split_stay_pinned() -> None:
    cache = Cache(12, clock=Clock(0.0))
    cache.insert("abcdef")
    cache.real.pin("a", ids_of("abcdef"), 60.0)
    cache.insert("abcxyz")
    cache.insert("123")
    cache.insert("456")
    assert cache.match("abcdef") == "abcdef" and cache.match("abcxyz") == "abc"


def test_pins_of_one_who_holds_too_much_count_for_nothing() -> None:
    cache = Cache(10, clock=Clock(0.0))
    for text in ("aaaaa", "bbbbb"):
        cache.insert(text, "greedy")
        cache.real.pin("greedy", ids_of(text), 60.0)
    cache.insert("ccccc", "other")
    assert cache.match("ccccc", "other") == "ccccc"
