"""Sizes and patches of images, against the processor that transformers has for Qwen's vision models."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize

from proxy_inference_engine.errors import InvalidRequest, StartupError
from proxy_inference_engine.runners.checkpoint import Json
from proxy_inference_engine.runners.tokenizer_json import load_vocabulary
from proxy_inference_engine.runners.vision.grid import Cutter, QwenImageEncoder
from tests.tiny import write_byte_tokenizer
from tests.tiny.image_models import make_image, write_qwen3_vl

# As Qwen publishes it.
PUBLISHED: Json = {
    "size": {"longest_edge": 16_777_216, "shortest_edge": 65_536},
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
TINY: Json = {**PUBLISHED, "size": {"longest_edge": 64 * 64, "shortest_edge": 4 * 64}, "patch_size": 4}


def test_grids_are_those_of_transformers() -> None:
    cutter = Cutter.of(PUBLISHED, 16_384)
    draw = np.random.default_rng(0)
    sizes = np.exp(draw.uniform(np.log(4), np.log(6000), (2000, 2))).astype(int)
    seen = sizes[sizes.max(axis=1) <= 200 * sizes.min(axis=1)]
    assert len(seen) > 1500
    for height, width in seen.tolist():
        rows, columns = cutter.grid(width, height)
        expected = smart_resize(height, width, factor=32, min_pixels=65_536, max_pixels=16_777_216)
        assert (rows * 32, columns * 32) == expected, (width, height)


@pytest.mark.parametrize(
    ("width", "height", "grid"),
    [
        (640, 480, (15, 20)),
        (1, 1, (8, 8)),  # smallest
        (48, 48, (8, 8)),
        (4000, 3000, (55, 73)),  # shrunk to 4096 tokens
        (20, 4000, (125, 1)),
        (200, 1, (1, 114)),
    ],
)
def test_grid(width: int, height: int, grid: tuple[int, int]) -> None:
    found = Cutter.of(PUBLISHED, 4096).grid(width, height)
    assert found == grid
    assert found.num_tokens <= 4096


@pytest.mark.parametrize(("width", "height"), [(201, 1), (10, 2001), (0, 10), (10, 0)])
def test_what_cannot_be_seen_is_refused(width: int, height: int) -> None:
    with pytest.raises(InvalidRequest, match=f"{width}x{height} pixels cannot be seen"):
        Cutter.of(PUBLISHED, 4096).grid(width, height)


@pytest.mark.parametrize(
    ("settings", "limits"),
    [
        ({}, (256 * 256, 4096 * 32 * 32)),
        ({"size": {"shortest_edge": 100, "longest_edge": 10_000}}, (100, 10_000)),
        ({"min_pixels": 200, "max_pixels": 20_000}, (200, 20_000)),
        ({"size": {"min_pixels": 300, "max_pixels": 30_000}}, (300, 30_000)),
    ],
)
def test_limits_are_read_from_wherever_files_have_them(settings: dict[str, object], limits: tuple[int, int]) -> None:
    cutter = Cutter.of(settings, 4096)
    assert (cutter.min_pixels, cutter.max_pixels) == limits


@pytest.mark.parametrize(("width", "height"), [(47, 61), (64, 64), (5, 90), (300, 200)])
def test_patches_are_those_of_transformers(width: int, height: int) -> None:
    image = make_image(1, width, height)
    processed = Qwen2VLImageProcessorPil(**TINY)(images=Pillow.fromarray(image.pixels), return_tensors="np")
    cutter = Cutter.of(TINY, 4096)
    rows, columns = cutter.grid(width, height)
    assert processed["image_grid_thw"].tolist() == [[1, rows * 2, columns * 2]]
    np.testing.assert_allclose(cutter.patches(image.pixels), processed["pixel_values"], atol=1e-6)


def test_an_image_is_its_marker_repeated(tmp_path: Path) -> None:
    folder = write_qwen3_vl(tmp_path / "model")
    image_encoder = QwenImageEncoder(
        load_vocabulary(folder), Cutter.of(json.loads((folder / "preprocessor_config.json").read_text()), 64)
    )
    marker_id = load_vocabulary(folder).specials[image_encoder.marker]
    assert image_encoder.tokens(40, 24) == ((marker_id,) * 15, 0, 15)
    with pytest.raises(InvalidRequest):
        image_encoder.tokens(1, 1000)


def test_a_tokenizer_without_the_marker_is_refused(tmp_path: Path) -> None:
    write_byte_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(StartupError, match="image_pad"):
        QwenImageEncoder(load_vocabulary(tmp_path), Cutter.of(TINY, 64))
