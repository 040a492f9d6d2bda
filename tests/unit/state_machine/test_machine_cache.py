"""The cache of machines: bounded by entries and by sizes, also when several threads use it."""

import threading

from proxy_inference_engine.state_machine.machine import LruCache


def test_the_least_recently_used_goes_first() -> None:
    cache: LruCache[int] = LruCache(max_entries=2, max_size=100)
    cache.put("a", 1, 1)
    cache.put("b", 2, 1)
    assert cache.get("a") == 1
    cache.put("c", 3, 1)
    assert (cache.get("a"), cache.get("b"), cache.get("c"), len(cache)) == (1, None, 3, 2)


def test_sizes_are_bounded_together() -> None:
    cache: LruCache[str] = LruCache(max_entries=100, max_size=10)
    for name in "abcdef":
        cache.put(name, name, 3)
    assert [cache.get(name) for name in "abcdef"] == [None, None, None, "d", "e", "f"]


def test_replacing_an_entry_counts_it_once() -> None:
    cache: LruCache[int] = LruCache(max_entries=100, max_size=10)
    for value in range(50):
        cache.put("a", value, 4)
    cache.put("b", 1, 4)
    assert (cache.get("a"), cache.get("b")) == (49, 1)


def test_an_entry_over_the_bound_stays_alone() -> None:
    cache: LruCache[int] = LruCache(max_entries=100, max_size=10)
    cache.put("a", 1, 4)
    cache.put("b", 2, 50)
    assert (cache.get("a"), cache.get("b")) == (None, 2)
    cache.put("c", 3, 4)
    assert (cache.get("b"), cache.get("c")) == (None, 3)


def test_a_flood_of_one_owner_takes_nothing_from_others() -> None:
    cache: LruCache[int] = LruCache(max_entries=100, max_size=10)
    cache.put("mine", 1, 3, "a")
    for number in range(50):
        cache.put(f"flood {number}", number, 2, "b")
    assert cache.get("mine") == 1
    assert [number for number in range(50) if cache.get(f"flood {number}") is not None] == [47, 48, 49]


def test_one_that_is_too_large_stays_and_others_go() -> None:
    cache: LruCache[int] = LruCache(max_entries=100, max_size=10)
    cache.put("mine", 1, 3, "a")
    cache.put("huge", 2, 50, "b")
    assert (cache.get("mine"), cache.get("huge")) == (None, 2)
    cache.put("again", 3, 3, "a")
    assert (cache.get("huge"), cache.get("again")) == (None, 3)


def test_what_changes_its_owner_is_counted_once() -> None:
    cache: LruCache[int] = LruCache(max_entries=100, max_size=10)
    for owner in "abab":
        cache.put("one", 1, 6, owner)
    cache.put("other", 2, 4, "c")
    assert (cache.get("one"), cache.get("other")) == (1, 2)


def test_threads_keep_the_books_straight() -> None:
    cache: LruCache[int] = LruCache(max_entries=8, max_size=40)

    def work(first: int) -> None:
        for number in range(2000):
            key = str((first * number) % 23)
            cache.put(key, number, 1 + number % 7)
            cache.get(key)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < len(cache) <= 8
    for number in range(8):
        cache.put(f"last{number}", number, 1)
    assert [cache.get(f"last{number}") for number in range(8)] == list(range(8))
