"""Which turns are summarised, and which stay as they are."""

from typing import Any

import pytest

from proxy_inference_engine.server.apis.responses.compaction import divided
from tests.unit.server.apis.responses.items import call, proved, result, said, user


@pytest.mark.parametrize(
    ("items", "num_kept"),
    [
        ([user("a")], 0),
        ([user("a" * 900), said("b"), user("c")], 1),
        ([user("a" * 900), said("b"), user("c"), call("1"), result("1")], 3),
        ([user("a"), said("b"), user("c" * 900)], 0),
        ([user("a" * 900), call("1"), user("c"), result("1")], 0),
    ],
)
def test_the_last_turn_is_kept_when_it_is_short(items: list[dict[str, Any]], num_kept: int) -> None:
    parts = divided(proved(items))
    assert len(parts.kept) == num_kept and len(parts.older) + len(parts.kept) == len(items)


@pytest.mark.parametrize(("num_bytes", "num_kept"), [(100_000, 2), (1 << 20, 0)])
def test_a_last_turn_with_large_images_is_summarised(num_bytes: int, num_kept: int) -> None:
    """Sealed it would be more than the next request may bring, or the store takes."""
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * num_bytes}
    last = {"role": "user", "content": [{"type": "input_text", "text": "Look"}, image]}
    parts = divided(proved([user("a" * 100), said("b"), last, said("c")]))
    assert len(parts.kept) == num_kept
