"""Fill-in-the-middle: whose markers are found, and in which order everything stands."""

import pytest

from proxy_inference_engine.prompt.infill import Markers, find_markers, infill
from proxy_inference_engine.runners.fake import BOS, ByteTokenizer

FIRST = 260  # the id of the first token that a test defines
MARKERS = Markers(1, 2, 3)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"), Markers(FIRST, FIRST + 2, FIRST + 1)),
        (("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), Markers(FIRST, FIRST + 1, FIRST + 2)),
        (("<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"), Markers(FIRST + 1, FIRST, FIRST + 2)),
        (("▁<PRE>", "▁<SUF>", "▁<MID>"), Markers(FIRST, FIRST + 1, FIRST + 2)),
        (("<|fim_prefix|>", "<|fim_suffix|>"), None),
        (("<|fim_prefix|>", "<fim_suffix>", "<fim-middle>"), None),
        ((), None),
    ],
)
def test_markers_are_found_by_name_and_only_together(names: tuple[str, ...], expected: Markers | None) -> None:
    assert find_markers(ByteTokenizer(defined=names)) == expected


@pytest.mark.parametrize(
    ("prompt", "bos_id", "expected"),
    [
        ((10, 11), None, (1, 10, 11, 2, 20, 21, 3)),
        ((10, 11), BOS, (1, 10, 11, 2, 20, 21, 3)),
        ((BOS, 10), BOS, (BOS, 1, 10, 2, 20, 21, 3)),
        ((BOS, 10), None, (1, BOS, 10, 2, 20, 21, 3)),
        ((BOS,), BOS, (BOS, 1, 2, 20, 21, 3)),
        ((), BOS, (1, 2, 20, 21, 3)),
    ],
)
def test_the_order(prompt: tuple[int, ...], bos_id: int | None, expected: tuple[int, ...]) -> None:
    assert infill(MARKERS, prompt, (20, 21), bos_id) == expected
