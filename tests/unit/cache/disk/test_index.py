"""Which files hold a text, which of them go first, and that bytes are counted by files."""

import numpy as np
import pytest

from proxy_inference_engine.cache.disk.file import Header, Piece
from proxy_inference_engine.cache.disk.index import DiskFile, DiskIndex
from proxy_inference_engine.runners.base import TokenIds

FILE_BYTES = 10


def ids_of(text: str) -> TokenIds:
    return np.array([ord(char) for char in text], np.int32)


def file_of(text: str, start: int = 0, *lengths: int, tenant: str = "t") -> DiskFile:
    """A file of a text's tokens from `start` on, in pieces of these lengths."""
    pieces = tuple(Piece(length, length) for length in lengths or (len(text) - start,))
    return DiskFile(text, Header("m", tenant, ids_of(text), start, pieces), FILE_BYTES)


class Index:
    """A DiskIndex spoken to in text."""

    def __init__(self, max_files: int = 100, *, can_splice: bool = True) -> None:
        self.real = DiskIndex(max_files * FILE_BYTES, can_splice=can_splice)

    def add(self, text: str, start: int = 0, *lengths: int) -> bool:
        is_added = self.real.add(file_of(text, start, *lengths))
        self.real.check()
        return is_added

    def find(self, text: str, start: int = 0) -> list[tuple[str, int, int, int]]:
        takes = self.real.find("t", ids_of(text), start)
        return [(take.file.name, take.first, take.stop, take.end) for take in takes]


@pytest.mark.parametrize(
    ("asked", "start", "found"),
    [
        ("hello world", 0, [("hello world", 0, 2, 11)]),
        ("hello", 0, [("hello world", 0, 1, 5)]),
        ("hello ", 0, [("hello world", 0, 2, 6)]),
        ("hello world!", 5, [("hello world", 1, 2, 11)]),
        ("hello world!", 4, [("hello world", 0, 2, 11)]),
        ("hello world!", 11, []),
        ("help", 0, [("hello world", 0, 1, 3)]),
        ("yellow", 0, []),
        ("", 0, []),
    ],
)
def test_the_pieces_that_a_text_needs(asked: str, start: int, found: list[tuple[str, int, int, int]]) -> None:
    index = Index()
    assert index.add("hello world", 0, 5, 6)
    assert index.find(asked, start) == found


def test_a_chain_of_files() -> None:
    index = Index()
    assert index.add("abcdef") and index.add("abcxyz", 3) and index.add("abcxyz123", 6)
    assert index.find("abcxyz12") == [("abcdef", 0, 1, 3), ("abcxyz", 0, 1, 6), ("abcxyz123", 0, 1, 8)]
    assert index.find("abcxyz12", 3) == [("abcxyz", 0, 1, 6), ("abcxyz123", 0, 1, 8)]


def test_a_file_that_begins_earlier_makes_others_needless() -> None:
    index = Index()
    assert index.add("abcdef") and index.add("abxyz", 0)
    assert index.find("abxyz") == [("abxyz", 0, 1, 5)]


def test_a_file_without_its_beginning_is_refused_and_one_that_adds_nothing() -> None:
    index = Index()
    assert not index.add("abcdef", 3)
    assert index.add("abcdef")
    assert not index.add("abcd") and not index.add("abcdef")
    assert index.real.num_bytes == FILE_BYTES and index.real.removed() == []


def test_tenants_are_apart() -> None:
    index = Index()
    index.real.add(file_of("abc", tenant="other"))
    assert index.find("abc") == [] and index.real.num_known("t", ids_of("abc")) == 0


def test_the_least_recently_used_goes_first_and_what_builds_on_it_before_it() -> None:
    index = Index(3)
    for text, start in (("abc", 0), ("abcdef", 3), ("xyz", 0)):
        assert index.add(text, start)
    index.find("abcd")
    assert index.add("new1")
    assert index.real.removed() == ["xyz"] and index.real.removed() == []
    assert index.add("new2")
    assert index.real.removed() == ["abcdef"]
    assert index.add("new3")
    assert index.real.removed() == ["abc"]


def test_a_file_goes_with_its_last_part() -> None:
    """The end of a text is evicted first; the file has to stay while its beginning is needed."""
    index = Index(2)
    assert index.add("abcdef") and index.add("abcxyz", 3)  # divides the first file's tokens
    index.find("abcxyz")
    assert index.add("new1")
    assert index.real.removed() == ["abcxyz"]
    assert index.find("abcdef") == [("abcdef", 0, 1, 3)]


def test_what_is_larger_than_the_budget_is_refused() -> None:
    index = Index(0)
    assert not index.add("abc")
    assert index.real.num_bytes == 0


def test_files_of_other_models_go_before_ours_the_oldest_first() -> None:
    index = Index(3)
    index.real.add_other("recent", FILE_BYTES)
    index.real.add_other("old", FILE_BYTES)
    assert index.add("abc") and index.real.removed() == []
    assert index.add("def") and index.real.removed() == ["old"]
    assert index.add("ghi") and index.real.removed() == ["recent"]
    assert index.add("jkl") and index.real.removed() == ["abc"]


def test_a_dropped_file_takes_along_what_builds_on_it() -> None:
    index = Index()
    first, second = file_of("abcdef"), file_of("abcxyz", 3)
    assert index.real.add(first) and index.real.add(second) and index.add("other")
    index.real.drop(first)
    assert sorted(index.real.removed()) == ["abcdef", "abcxyz"]
    index.real.check()
    assert index.find("abcdef") == [] and index.find("other") != []
    index.real.drop(first)
    assert index.real.removed() == []


def test_whole_texts_only_where_nothing_can_be_cut() -> None:
    index = Index(can_splice=False)
    short, long = file_of("abc"), file_of("abcdef")
    assert index.real.add(short) and index.real.add(long)
    assert index.find("abcdefg") == [("abcdef", 0, 1, 6)]
    assert index.find("abcde") == [("abc", 0, 1, 3)]
    assert index.real.num_known("t", ids_of("abcde")) == 0
    assert index.real.num_known("t", ids_of("abc")) == 3
    index.real.drop(short)
    index.real.check()
    assert index.real.removed() == ["abc"]
    assert index.find("abcdefg") == [("abcdef", 0, 1, 6)] and index.find("abcde") == []
    index.real.drop(long)
    index.real.check()
    assert index.real.removed() == ["abcdef"] and index.real.num_bytes == 0
