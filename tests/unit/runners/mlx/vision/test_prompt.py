"""Prompts with images have the ids that mlx-vlm's processors give the same rendered text, wherever a newline stands."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlx_vlm.models.gemma3.processing_gemma3 import Gemma3Processor
from mlx_vlm.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from PIL import Image as Pillow
from tokenizers import AddedToken, Tokenizer

from proxy_inference_engine.formats import by_name
from proxy_inference_engine.interaction import Content, ContentType, Interaction, Role
from proxy_inference_engine.prompt import PromptRenderer
from proxy_inference_engine.prompt.images import IMAGE
from proxy_inference_engine.runners.base import ImageEncoder
from proxy_inference_engine.runners.mlx.vision.gemma3 import Gemma3ImageEncoder
from proxy_inference_engine.runners.tokenizer_json import load_vocabulary
from proxy_inference_engine.runners.vision.grid import Cutter, QwenImageEncoder
from proxy_inference_engine.runners.vision.pixels import read_settings
from proxy_inference_engine.types import Image
from tests.tiny.image_models import GEMMA_TURNS, QWEN_TURNS, make_image, write_gemma3, write_qwen3_vl

CAT, DOG = make_image(1, 40, 24), make_image(2, 61, 47)
AN_IMAGE = "#"  # in the texts below


def gemma(folder: Path) -> tuple[PromptRenderer, Any]:
    write_gemma3(folder)
    blanks = Tokenizer.from_file(str(folder / "tokenizer.json"))
    blanks.add_tokens([AddedToken("\n" * size, special=False, normalized=False) for size in range(1, 6)])
    blanks.save(str(folder / "tokenizer.json"))  # the published one has these
    tokenizer = load_vocabulary(folder)
    image_encoder: ImageEncoder = Gemma3ImageEncoder(tokenizer, 16)
    return PromptRenderer(
        tokenizer, by_name("gemma3"), GEMMA_TURNS, image_encoder=image_encoder
    ), Gemma3Processor.from_pretrained(folder)


def qwen(folder: Path) -> tuple[PromptRenderer, Any]:
    tokenizer = load_vocabulary(write_qwen3_vl(folder))
    image_encoder: ImageEncoder = QwenImageEncoder(tokenizer, Cutter.of(read_settings(folder), 64))
    return PromptRenderer(
        tokenizer, by_name("chatml"), QWEN_TURNS, image_encoder=image_encoder
    ), Qwen3VLProcessor.from_pretrained(folder)


@pytest.fixture(scope="module", params=[gemma, qwen])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[PromptRenderer, Any]:
    made: tuple[PromptRenderer, Any] = request.param(tmp_path_factory.mktemp("model"))
    return made


@pytest.mark.parametrize(
    "text", ["#What is it?", "What is it?#", "a\n#\nb", "#", "##", "a##b", "# #", "What is\n\n#\n\n\nthe capital#?"]
)
def test_ids_are_the_processors(both: tuple[PromptRenderer, Any], text: str) -> None:
    renderer, processor = both
    parts: list[Content] = []
    images: list[Image] = []
    for run in text.replace(AN_IMAGE, f"\0{AN_IMAGE}\0").split("\0"):
        if run == AN_IMAGE:
            images.append(DOG if images else CAT)
            parts.append(Content(ContentType.IMAGE, data={IMAGE: images[-1]}))
        elif run:
            parts.append(Content.of(run))
    prompt = renderer.chat([Interaction(Role.USER, tuple(parts)), Interaction.of(Role.ASSISTANT, "Paris")])
    files = [Pillow.fromarray(each.pixels) for each in images]
    inputs = processor(images=files, text=prompt.text, add_special_tokens=False)
    assert list(prompt.ids) == np.array(inputs["input_ids"])[0].tolist()
    for span, image in zip(prompt.images, images, strict=True):
        assert len(set(prompt.ids[span.start : span.start + span.num_tokens])) == 1 and span.image is image
