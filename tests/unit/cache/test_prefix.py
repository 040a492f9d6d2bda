"""What the prefix cache promises, and its whole behaviour against a naive model."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy_inference_engine.cache.prefix import Match, PrefixCache, common_prefix
from proxy_inference_engine.runners.base import Segment
from proxy_inference_engine.runners.fake import FakeSegment
from tests.unit.cache.naive import NaiveCache
from tests.unit.cache.text_cache import ROOMY, TOKEN_BYTES, Cache, ids_of, restored

# Matching


def test_an_empty_cache_matches_nothing() -> None:
    assert Cache().real.match("a", ids_of("hello")) == Match(0, [], None)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("hello", "hello"),
        ("hello world", "hello"),
        ("hell", "hell"),
        ("h", "h"),
        ("help", "hel"),
        ("jello", ""),
        ("", ""),
    ],
)
def test_a_match_is_exact_to_the_token_and_a_longer_sequence_serves_a_shorter_prefix(asked: str, found: str) -> None:
    cache = Cache()
    cache.insert("hello")
    assert cache.match(asked) == found


def test_a_match_joins_the_segments_along_the_path() -> None:
    cache = Cache()
    cache.insert("one ")
    cache.insert("one two ")
    cache.insert("one two three")
    match = cache.real.match("a", ids_of("one two three four"))
    assert [segment.num_tokens for segment in match.segments] == [4, 4, 5]
    assert restored(match) == "one two three"


def test_ids_are_compared_not_their_first_byte() -> None:
    cache = PrefixCache(ROOMY * TOKEN_BYTES)
    cache.insert("a", np.array([1, 70_000], np.int32), lambda start: FakeSegment.of(np.zeros(2 - start, np.int32)), 1)
    assert cache.match("a", np.array([1, 70_000 & 0xFFFF], np.int32)).num_tokens == 1


def test_the_same_ids_of_another_tenant_do_not_match() -> None:
    cache = Cache()
    cache.insert("secret plan", "a")
    assert cache.match("secret plan", "b") == ""
    cache.insert("secret plan", "b")
    assert cache.exports == [0, 0]


# Inserting


def test_known_ids_export_nothing() -> None:
    cache = Cache()
    cache.insert("hello world")
    for known in "hello world", "hello", "h":
        cache.insert(known)
    assert cache.exports == [0]


def test_only_the_unknown_end_is_exported() -> None:
    cache = Cache()
    cache.insert("hello")
    cache.insert("hello world")
    assert cache.exports == [0, 5]
    assert cache.real.num_tokens == len("hello world")


def test_an_edge_is_split_where_two_sequences_part() -> None:
    cache = Cache()
    cache.insert("the cat")
    cache.insert("the dog")
    assert cache.exports == [0, 4]
    assert cache.segments[0].is_freed, "the whole edge lives on in its two halves only"
    assert cache.match("the cat") == "the cat"
    assert cache.match("the dog") == "the dog"
    assert cache.match("the cow") == "the c"
    assert cache.real.num_tokens == len("the catdog")


def test_a_failing_export_leaves_the_cache_as_it_was() -> None:
    cache = Cache()
    cache.insert("hello")

    def fail(start: int) -> Segment:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        cache.real.insert("a", ids_of("help"), fail, TOKEN_BYTES)
    cache.real.check()
    assert cache.real.num_locked == 0
    assert cache.match("hello") == "hello"
    assert cache.match("help") == "hel"


def test_ids_are_copied() -> None:
    cache = PrefixCache(ROOMY * TOKEN_BYTES)
    ids = ids_of("hello")
    cache.insert("a", ids, lambda start: FakeSegment.of(ids_of("hello")), TOKEN_BYTES)
    ids[:] = 0
    assert cache.match("a", ids_of("hello")).num_tokens == 5


# Evicting


def test_the_budget_is_never_exceeded() -> None:
    cache = Cache(max_tokens=10)
    for text in "aaaa", "bbbb", "cccc", "ddddddd":
        cache.insert(text)
        assert cache.real.num_bytes <= 10 * TOKEN_BYTES
    assert cache.real.num_tokens == 7


def test_the_least_recently_inserted_goes_first() -> None:
    cache = Cache(max_tokens=8)
    for text in "aaaa", "bbbb", "cccc":
        cache.insert(text)
    assert [cache.match(text) for text in ("aaaa", "bbbb", "cccc")] == ["", "bbbb", "cccc"]
    assert [segment.is_freed for segment in cache.segments] == [True, False, False]


def test_a_match_counts_as_use() -> None:
    cache = Cache(max_tokens=8)
    cache.insert("aaaa")
    cache.insert("bbbb")
    cache.match("aa")
    cache.insert("cccc")
    assert [cache.match(text) for text in ("aaaa", "bbbb", "cccc")] == ["aaaa", "", "cccc"]


def test_inserting_what_is_known_counts_as_use() -> None:
    cache = Cache(max_tokens=8)
    cache.insert("aaaa")
    cache.insert("bbbb")
    cache.insert("aaaa")
    cache.insert("cccc")
    assert [cache.match(text) for text in ("aaaa", "bbbb", "cccc")] == ["aaaa", "", "cccc"]


def test_leaves_go_before_what_they_hang_on() -> None:
    cache = Cache(max_tokens=12)
    cache.insert("base")
    cache.insert("base one")
    cache.insert("base two")  # 4 + " " + "one" + "two": 11 tokens
    cache.insert("xx")
    assert cache.match("base one") == "base "
    assert cache.match("base two") == "base two"


def test_what_is_too_large_for_the_budget_is_not_exported_and_evicts_nothing() -> None:
    cache = Cache(max_tokens=4)
    cache.insert("aaaa")
    cache.insert("bbbbb")
    assert cache.exports == [0]
    assert cache.match("aaaa") == "aaaa"


def test_a_cache_of_no_size_holds_nothing() -> None:
    cache = Cache(max_tokens=0)
    cache.insert("a")
    assert cache.exports == []
    assert cache.match("a") == ""


def test_a_path_is_not_evicted_to_make_room_for_its_own_end() -> None:
    cache = Cache(max_tokens=6)
    cache.insert("aaaa")
    cache.insert("aaaabbb")
    assert cache.exports == [0]
    assert cache.match("aaaabbb") == "aaaa"


def test_locked_nodes_and_all_above_them_survive() -> None:
    cache = Cache(max_tokens=8)
    cache.insert("aa")
    cache.insert("aabb")
    locked = cache.real.match("a", ids_of("aabb")).node
    assert locked is not None
    cache.insert("cccc")
    cache.real.lock(locked)
    assert cache.real.num_locked == 2
    assert not cache.real.make_room(5 * TOKEN_BYTES)
    cache.insert("dddd")
    assert [cache.match(text) for text in ("aabb", "cccc", "dddd")] == ["aabb", "", "dddd"]
    cache.real.unlock(locked)
    assert cache.real.num_locked == 0
    assert cache.real.make_room(8 * TOKEN_BYTES)
    assert cache.match("aabb") == ""


def test_a_lock_holds_across_a_split() -> None:
    cache = Cache()
    cache.insert("aabb")
    locked = cache.real.match("a", ids_of("aabb")).node
    assert locked is not None
    cache.real.lock(locked)
    cache.insert("aacc")
    cache.real.clear()
    assert cache.match("aabb") == "aabb"
    cache.real.unlock(locked)
    cache.real.clear()
    assert cache.match("aabb") == ""


def test_unlocking_more_often_than_locking_is_a_mistake() -> None:
    cache = Cache()
    cache.insert("aa")
    node = cache.real.match("a", ids_of("aa")).node
    assert node is not None
    with pytest.raises(AssertionError, match="unlocked more often"):
        cache.real.unlock(node)


def test_clear_frees_every_segment() -> None:
    cache = Cache()
    for text in "one", "one two", "three":
        cache.insert(text)
        cache.insert(text, tenant="b")
    cache.real.clear()
    cache.real.check()
    assert (cache.real.num_bytes, cache.real.num_tokens) == (0, 0)
    assert all(segment.is_freed for segment in cache.segments)
    assert not cache.real.evict_one()


# Shares


def held(cache: Cache, *tenants: str) -> list[int]:
    """Tokens of each."""
    return [cache.real._shares.held(tenant) // TOKEN_BYTES for tenant in tenants]


def unique(number: int, length: int) -> str:
    return chr(1000 + number) * length


def test_one_alone_may_have_everything() -> None:
    cache = Cache(max_tokens=100)
    for number in range(30):
        cache.insert(unique(number, 10), "a")
    assert held(cache, "a") == [100]


@pytest.mark.parametrize("length", [1, 7, 10, 50])
def test_a_flood_takes_nothing_of_another_s_fair_share(length: int) -> None:
    """However many prompts one key sends, and however little the other asks meanwhile."""
    cache = Cache(max_tokens=100)
    cache.insert("x" * 40, "quiet")
    for number in range(300):
        cache.insert(unique(number, length), "flood")
    assert cache.match("x" * 40, "quiet") == "x" * 40
    assert held(cache, "quiet") == [40] and 50 <= held(cache, "flood")[0] <= 60


def test_a_prompt_that_is_larger_than_its_share_does_not_push_others_out_of_theirs() -> None:
    cache = Cache(max_tokens=100)
    cache.insert("x" * 50, "quiet")
    cache.insert("y" * 70, "greedy")
    assert held(cache, "quiet", "greedy") == [50, 0]
    cache.insert("z" * 50, "greedy")
    assert held(cache, "quiet", "greedy") == [50, 50]


def test_who_has_more_than_a_share_gives_way_to_whoever_comes() -> None:
    cache = Cache(max_tokens=100)
    for number in range(20):
        cache.insert(unique(number, 5), "first")
    for number, tenant in enumerate("bcd"):
        for _ in range(3):
            cache.insert(unique(number, 20), tenant)
    assert held(cache, "first", "b", "c", "d") == [40, 20, 20, 20]
    for number in range(2):
        cache.insert(unique(100 + number, 5), "b")
    assert held(cache, "first", "b", "c", "d") == [30, 30, 20, 20], "the larger one, until they are alike"


def test_within_a_tenant_the_least_recently_used_goes() -> None:
    cache = Cache(max_tokens=40)
    cache.insert("q" * 20, "quiet")
    for text in ("aaaaaaaaaa", "bbbbbbbbbb"):
        cache.insert(text, "flood")
    cache.match("aaaaaaaaaa", "flood")
    cache.insert("cccccccccc", "flood")
    assert [cache.match(text, "flood") for text in ("aaaaaaaaaa", "bbbbbbbbbb")] == ["aaaaaaaaaa", ""]
    assert cache.match("q" * 20, "quiet") == "q" * 20


def test_of_many_tenants_each_may_have_an_eighth() -> None:
    """A share of a hundredth would hold no prompt: with so many, the least recently used of all goes."""
    cache = Cache(max_tokens=800)
    for number in range(100):
        cache.insert(unique(number, 8), f"t{number}")
    cache.insert("x" * 100, "new")
    assert held(cache, "new", "t0", "t11", "t12", "t13") == [100, 0, 0, 0, 8]
    cache.insert("y" * 100, "new")
    assert held(cache, "new", "t13") == [100, 8], "more than an eighth gives way itself"


# Where segments can't be cut


def test_without_splicing_only_a_whole_snapshot_is_reused() -> None:
    cache = Cache(can_splice=False)
    cache.insert("hello world")
    assert cache.match("hello worl") == ""
    assert cache.match("hello world") == "hello world"
    assert cache.match("hello world!") == "hello world"


def test_without_splicing_the_longest_snapshot_wins_and_comes_alone() -> None:
    cache = Cache(can_splice=False)
    for text in "one", "one two", "one two three":
        cache.insert(text)
    assert cache.exports == [0, 0, 0]
    match = cache.real.match("a", ids_of("one two thrift"))
    assert (len(match.segments), restored(match)) == (1, "one two")


def test_without_splicing_a_fork_holds_nothing_until_its_own_snapshot_comes() -> None:
    cache = Cache(can_splice=False)
    cache.insert("the cat")
    cache.insert("the dog")
    assert cache.real.num_tokens == 14
    assert cache.match("the cow") == ""
    cache.insert("the ")
    assert cache.match("the cow") == "the "
    assert cache.match("the dog") == "the dog"


def test_without_splicing_a_fork_that_leads_nowhere_is_forgotten() -> None:
    cache = Cache(can_splice=False)
    cache.insert("the cat")
    cache.insert("the dog")
    while cache.real.evict_one():
        cache.real.check()
    assert cache.real.num_tokens == 0
    assert all(segment.is_freed for segment in cache.segments)


# Against the model

texts = st.integers(2, 63).map(lambda number: f"{number:b}"[1:])  # up to five of 0 and 1, all alike likely
tenants = st.sampled_from(["xxxy", "xxyyzz", "abcdefghijkl"])  # one mostly, a few, more than there are shares
kinds = st.sampled_from(["insert", "insert", "insert", "match", "match", "evict"])
operations = tenants.flatmap(
    lambda names: st.lists(st.tuples(kinds, st.sampled_from(names), texts), min_size=15, max_size=40)
)


@settings(max_examples=300)
@given(operations=operations, max_tokens=st.sampled_from([4, 9, 20, ROOMY]), can_splice=st.booleans())
def test_any_history_agrees_with_a_dict_of_tuples(
    operations: list[tuple[str, str, str]], max_tokens: int, can_splice: bool
) -> None:
    cache, model = Cache(max_tokens, can_splice=can_splice), NaiveCache(max_tokens, can_splice=can_splice)
    for name, tenant, text in operations:
        ids = tuple(map(ord, text))
        if name == "insert":
            cache.exports.clear()
            cache.insert(text, tenant)
            start = model.insert(tenant, ids)
            assert cache.exports == ([] if start is None else [start])
        elif name == "match":
            assert cache.match(text, tenant) == text[: model.match(tenant, ids)]
        else:
            assert cache.real.evict_one() == model.evict_one()
        cache.real.check()
        assert cache.real.num_tokens == model.num_tokens
        assert cache.real._shares.held(tenant) == model.held(tenant) * TOKEN_BYTES
    for tenant, path in model.entries:
        assert cache.real.match(tenant, np.array(path, np.int32)).num_tokens == model.match(tenant, path)


@given(a=texts, b=texts)
def test_common_prefix(a: str, b: str) -> None:
    num_shared = common_prefix(ids_of(a), ids_of(b))
    assert a[:num_shared] == b[:num_shared]
    assert num_shared in (len(a), len(b)) or a[num_shared] != b[num_shared]


def test_common_prefix_of_nothing() -> None:
    assert common_prefix(ids_of(""), ids_of("a")) == common_prefix(ids_of(""), ids_of("")) == 0


# Bugs found once


def test_an_edge_can_be_split_again_and_again() -> None:
    texts = "abcdefgh", "abcdefgX", "abcdXXXX", "abXXXXXX", "abcdefXX"
    cache = Cache()
    for text in texts:
        cache.insert(text)
    for text in texts:
        assert cache.match(text) == text


def test_kv_computed_after_other_tokens_is_never_served() -> None:
    """A split in the second half of an edge let the insertion go on below the split, into a stranger's branch."""
    cache = Cache()
    for text in "abcd", "abcdX", "abXYZ":
        cache.insert(text)
    assert cache.match("abcdXYZ") == "abcdX"
    assert cache.match("abXYZ") == "abXYZ"


def _segment(text: str, start: int) -> FakeSegment:
    return FakeSegment.of(ids_of(text[start:]))


def test_a_snapshot_larger_than_estimated_does_not_break_the_budget() -> None:
    cache = PrefixCache(10 * TOKEN_BYTES, can_splice=False)
    for text in "aaaa", "bbbb":  # estimated at half of its size
        cache.insert("a", ids_of(text), partial(_segment, text), TOKEN_BYTES // 2)
    cache.insert("a", ids_of("cccc"), lambda start: FakeSegment.of(ids_of("cccc")), TOKEN_BYTES // 2)
    cache.check()


def test_a_failing_split_leaves_the_books_right() -> None:
    class Stubborn(FakeSegment):
        def split(self, at: int) -> tuple[FakeSegment, FakeSegment]:
            raise MemoryError

    cache = PrefixCache(1000 * TOKEN_BYTES)
    cache.insert("a", ids_of("hello"), lambda start: Stubborn.of(ids_of("hello")), TOKEN_BYTES)
    with pytest.raises(MemoryError):
        cache.insert("a", ids_of("help"), lambda start: FakeSegment.of(ids_of("help"[start:])), TOKEN_BYTES)
    cache.check()


def test_a_tenant_whose_export_failed_is_forgotten() -> None:
    cache = PrefixCache(1000 * TOKEN_BYTES)

    def fail(start: int) -> FakeSegment:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        cache.insert("a", ids_of("hello"), fail, TOKEN_BYTES)
    assert not cache._roots


def test_a_long_chain_of_forks_can_be_evicted() -> None:
    cache = Cache(max_tokens=1500, can_splice=False)
    cache.insert("a" * 1500)
    for length in range(1, 1400):
        cache.insert("a" * length + "b" * 1500)  # too large to store, but each leaves its fork
    cache.real.clear()
    cache.real.check()
