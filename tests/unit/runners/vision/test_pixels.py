"""Resizing and normalising, against the processor that transformers has for Gemma 3; where settings stand."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

from proxy_inference_engine.errors import InvalidRequest, StartupError
from proxy_inference_engine.runners.checkpoint import Json
from proxy_inference_engine.runners.mlx.vision.gemma3 import Gemma3ImageEncoder
from proxy_inference_engine.runners.tokenizer_json import load_vocabulary
from proxy_inference_engine.runners.vision.pixels import Pixels, read_settings
from tests.tiny import write_piece_tokenizer
from tests.tiny.image_models import make_image, write_gemma3

# As Google publishes it.
PUBLISHED: Json = {
    "do_pan_and_scan": None,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "resample": 2,
    "rescale_factor": 0.00392156862745098,
    "size": {"height": 896, "width": 896},
}
BICUBIC = Pillow.Resampling.BICUBIC


@pytest.mark.parametrize(("width", "height"), [(640, 480), (896, 896), (30, 1200), (1, 1)])
def test_pixels_are_those_of_transformers(width: int, height: int) -> None:
    image = make_image(1, width, height)
    processed = Gemma3ImageProcessorPil(**PUBLISHED)(images=Pillow.fromarray(image.pixels), return_tensors="np")
    found = Pixels.of(PUBLISHED, BICUBIC).prepare(image.pixels, 896, 896)
    np.testing.assert_allclose(found.transpose(2, 0, 1), processed["pixel_values"][0], atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [-1.0, -0.6, 1.0]),
        ({"do_normalize": False}, [0.0, 0.2, 1.0]),
        ({"do_normalize": False, "do_rescale": False}, [0.0, 51.0, 255.0]),
        ({"image_mean": [0, 0.1, 1], "image_std": [1, 0.5, 2]}, [0.0, 0.2, 0.0]),
    ],
)
def test_settings_are_obeyed(settings: dict[str, object], expected: list[float]) -> None:
    pixels = np.array([[[0, 51, 255]]], np.uint8)
    found = Pixels.of(settings, BICUBIC).prepare(pixels, 1, 1)
    np.testing.assert_allclose(found[0, 0], expected, atol=1e-6)


def test_settings_stand_in_either_file(tmp_path: Path) -> None:
    assert read_settings(tmp_path) == {}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"resample": 2, "patch_size": 14}))
    assert read_settings(tmp_path) == {"resample": 2, "patch_size": 14}
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": {"patch_size": 16}}))
    assert read_settings(tmp_path) == {"resample": 2, "patch_size": 16}
    (tmp_path / "preprocessor_config.json").write_text("[")
    with pytest.raises(StartupError, match="preprocessor_config"):
        read_settings(tmp_path)


def test_gemma_writes_around_its_images(tmp_path: Path) -> None:
    vocabulary = load_vocabulary(write_gemma3(tmp_path / "model"))
    image_encoder = Gemma3ImageEncoder(vocabulary, 16)
    ids, start, num_tokens = image_encoder.tokens(640, 480)
    text = b"".join(vocabulary.token_bytes(token_id) for token_id in ids).decode()
    assert text == "<start_of_image>" + "<image_soft_token>" * 16 + "<end_of_image>"
    assert image_encoder.before == image_encoder.after == "\n\n"
    assert ids[start : start + num_tokens] == (vocabulary.specials["<image_soft_token>"],) * 16
    assert image_encoder.marker == "<start_of_image>"
    with pytest.raises(InvalidRequest):
        image_encoder.tokens(0, 480)


def test_a_tokenizer_without_the_markers_is_refused(tmp_path: Path) -> None:
    write_piece_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(StartupError, match="<start_of_image>, <image_soft_token>, <end_of_image>"):
        Gemma3ImageEncoder(load_vocabulary(tmp_path), 16)
