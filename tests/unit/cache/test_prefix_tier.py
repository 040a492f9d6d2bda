"""What a second tier needs of the prefix cache: to hear what goes, to list what is there, to have some forgotten."""

import pytest

from proxy_inference_engine.cache.prefix import Path
from proxy_inference_engine.runners.fake import FakeSegment
from tests.unit.cache.text_cache import Cache, ids_of


def told(cache: Cache) -> list[tuple[str, list[str]]]:
    """Notes every text that is evicted, and the parts it is made of, all of them still there."""
    notes: list[tuple[str, list[str]]] = []

    def note(path: Path) -> None:
        segments = [segment for segment in path.segments if isinstance(segment, FakeSegment)]
        assert not any(segment.is_freed for segment in segments)
        notes.append(("".join(map(chr, path.ids)), ["".join(map(chr, segment.ids)) for segment in segments]))

    cache.real.on_evict = note
    return notes


def test_who_listens_hears_of_a_text_before_its_end_is_freed() -> None:
    cache = Cache()
    notes = told(cache)
    for text in ("hello", "help", "yes"):
        cache.insert(text)
    cache.real.clear()
    assert notes == [("hello", ["hel", "lo"]), ("help", ["hel", "p"]), ("hel", ["hel"]), ("yes", ["yes"])]
    assert all(segment.is_freed for segment in cache.segments)


def test_of_snapshots_the_text_has_one_part() -> None:
    cache = Cache(can_splice=False)
    notes = told(cache)
    for text in ("hello", "hel"):
        cache.insert(text)
    cache.real.clear()
    assert notes == [("hello", ["hello"]), ("hel", ["hel"])]


@pytest.mark.parametrize(
    ("can_splice", "texts"), [(True, ["yes", "help", "hello"]), (False, ["yes", "hel", "help", "hello"])]
)
def test_texts_come_the_most_recent_first(can_splice: bool, texts: list[str]) -> None:
    cache = Cache(can_splice=can_splice)
    for text in ("hello", "hel", "help", "yes"):
        cache.insert(text)
    assert ["".join(map(chr, path.ids)) for path in cache.real.texts()] == texts


@pytest.mark.parametrize(
    ("can_splice", "start", "left"),
    [
        (True, 0, ["yes"]),
        (True, 2, ["yes"]),
        (True, 3, ["help", "yes"]),
        (False, 0, ["hello", "help", "yes"]),
        (False, 2, ["hello", "help", "yes"]),
        (False, 4, ["help", "hel", "yes"]),
    ],
)
def test_what_is_forgotten_takes_along_what_needs_it(can_splice: bool, start: int, left: list[str]) -> None:
    cache = Cache(can_splice=can_splice)
    for text in ("hello", "hel", "help", "yes"):
        cache.insert(text)
    cache.real.forget("a", ids_of("hello"), start)
    cache.real.check()
    assert sorted("".join(map(chr, path.ids)) for path in cache.real.texts()) == sorted(left)
