"""An image is computed in one piece, whatever else there is to compute: no row holds a part of one."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from proxy_inference_engine.runners.base import Logits, Row
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.types import Image, ImageSpan, Request
from tests.requests import make_request
from tests.unit.engine.driven import ENDLESS, Driven


class Watching(FakeRunner):
    """Keeps the rows that it was given."""

    def __init__(self) -> None:
        super().__init__(end_bias=ENDLESS)
        self.rows: list[Row] = []

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        self.rows += rows
        return super().forward(rows)


def request_with_image(draw: random.Random, name: str) -> Request:
    num_before, num_tokens, num_after = (
        draw.randrange(1, 300),
        draw.choice([0, 60, 200, 300, 450]),
        draw.randrange(2, 60),
    )
    ids = [*draw.choices(range(65, 90), k=num_before), *[66] * num_tokens, *[67] * num_after]
    image = Image(name.encode().ljust(32), np.zeros((1, 1, 3), np.uint8))
    images = (ImageSpan(num_before, num_tokens, image),) if num_tokens else ()
    return replace(make_request(ids, id=name, max_tokens=20), images=images)


def is_whole(row: Row, span: ImageSpan) -> bool:
    end, span_end = row.start + len(row.ids), span.start + span.num_tokens
    is_apart = end <= span.start or span_end <= row.start
    return is_apart or (row.start <= span.start and span_end <= end)


@pytest.mark.parametrize("seed", range(12))
def test_no_image_is_divided(seed: int) -> None:
    draw = random.Random(seed)
    driven = Driven(runner := Watching())
    for index in range(5):
        driven.add(request_with_image(draw, f"r{index}"))
        driven.step(draw.randrange(3))
    driven.run()
    assert sum(len(row.images) for row in runner.rows) > 0
    assert all(is_whole(row, span) for row in runner.rows for span in row.images)
