"""Positions of three axes: against plain rotary embedding for text, and mlx-vlm's for images."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx_vlm.models.qwen3_vl.language import Qwen3VLRotaryEmbedding
from mlx_vlm.utils import load_model as load_reference

from proxy_inference_engine.runners.mlx.model import load_model
from proxy_inference_engine.runners.mlx.vision.language import LanguageModel
from proxy_inference_engine.runners.mlx.vision.mrope import Mrope, Turner
from proxy_inference_engine.runners.mlx.vision.qwen3_vl import Qwen3VL
from proxy_inference_engine.types import ImageSpan
from tests.tiny.image_models import make_image, write_qwen3_vl

ROPE = nn.RoPE(32, base=10_000.0)
SECTIONS = (8, 4, 4)


def queries(num_tokens: int) -> mx.array:
    return mx.array(np.random.default_rng(0).normal(size=(1, 2, num_tokens, 32)).astype(np.float32))


@pytest.mark.parametrize("start", [0, 7, 1000])
def test_equal_axes_are_plain_rotary_embedding(start: int) -> None:
    """So text after an image needs nothing but another offset."""
    positions = np.tile(np.arange(start, start + 5), (3, 1))
    turned = Mrope(ROPE)(queries(5), offset=Turner(ROPE, SECTIONS).angles(positions))
    np.testing.assert_allclose(turned, Mrope(ROPE)(queries(5), offset=start), atol=2e-4)


def test_axes_take_turns_as_in_mlx_vlm() -> None:
    positions = np.random.default_rng(1).integers(0, 50, (3, 6))
    reference = Qwen3VLRotaryEmbedding(32, base=10_000.0, rope_scaling={"mrope_section": list(SECTIONS)})
    expected, _ = reference.apply_rotary(queries(6), queries(6), mx.array(positions)[:, None])
    turned = Mrope(ROPE)(queries(6), offset=Turner(ROPE, SECTIONS).angles(positions))
    np.testing.assert_allclose(turned, expected, atol=1e-4)


def test_rows_at_several_offsets_are_turned_as_one() -> None:
    """Sequences with and without images decode together."""
    two = mx.concatenate([queries(1), queries(1)])
    turned = Mrope(ROPE)(two, offset=mx.array([3, 40]))
    for row, offset in enumerate((3, 40)):
        np.testing.assert_allclose(turned[row], ROPE(queries(1), offset=offset)[0], atol=1e-5)


def test_positions_are_those_of_mlx_vlm(tmp_path: Path) -> None:
    folder = write_qwen3_vl(tmp_path / "model")
    loaded = load_model(folder, "tiny")
    family = Qwen3VL(folder, loaded.config, LanguageModel(loaded.model), loaded.vocabulary)
    opened, closed, pad = (
        loaded.vocabulary.specials[text] for text in ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
    )
    ids: list[int] = [20, 21, 22]
    spans = []
    grids = []
    for seed, (width, height) in enumerate(((40, 24), (16, 64), (64, 16))):
        image = make_image(seed, width, height)
        rows, columns = height // 8, width // 8
        spans.append(ImageSpan(len(ids) + 1, rows * columns, image))
        grids.append([1, rows * 2, columns * 2])
        ids += [opened, *[pad] * (rows * columns), closed, 30, 31]
    reference = load_reference(folder).language_model
    expected, delta = reference.get_rope_index(mx.array([ids]), image_grid_thw=mx.array(grids))
    images = tuple(spans)
    assert family.positions(0, len(ids), images).tolist() == expected[:, 0].tolist()
    assert family.shift(len(ids), images) == delta.item()
    for start in (2, spans[1].start - 1, spans[1].start + spans[1].num_tokens):
        found = family.positions(start, len(ids) - start, images)
        assert found.tolist() == expected[:, 0, start:].tolist()
