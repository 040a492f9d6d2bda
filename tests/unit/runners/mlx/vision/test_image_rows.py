"""From PNG pixels to logits, against mlx-vlm's own models and processors on the same files; and in pieces."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx_lm.models.cache import KVCache, make_prompt_cache
from mlx_vlm.models.gemma3.processing_gemma3 import Gemma3Processor
from mlx_vlm.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from mlx_vlm.utils import load_model as load_reference
from numpy.typing import NDArray
from PIL import Image as Pillow

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.mlx.model import load_model
from proxy_inference_engine.runners.mlx.vision.image_rows import FeatureCache, Vision, load_vision
from proxy_inference_engine.types import Image, ImageSpan
from tests.tiny.image_models import make_image, write_gemma3, write_qwen3_vl, write_qwen3_vl_moe

Logits = NDArray[np.float32]
Parts = Sequence[str | Image]

WRITERS: dict[str, Callable[[Path], Path]] = {
    "gemma3": write_gemma3,
    "qwen3_vl": write_qwen3_vl,
    "qwen3_vl_moe": write_qwen3_vl_moe,
}
QWEN = ("<|vision_start|>", "<|vision_end|>")
AROUND = {"gemma3": ("", ""), "qwen3_vl": QWEN, "qwen3_vl_moe": QWEN}
WINDOW = 32

CAT, DOG = make_image(1, 40, 24), make_image(2, 47, 61)
PROMPT: Parts = ("What is this:", CAT, " and the river runs to", DOG, " the capital of France is")


@dataclass
class Prompt:
    ids: NDArray[np.int32]  # as a sequence holds them: below -1 where images are
    real_ids: list[int]  # as a model reads them
    spans: tuple[ImageSpan, ...]


class Case:
    """One tiny checkpoint, loaded twice: by us and by mlx-vlm."""

    def __init__(self, family: str, folder: Path) -> None:
        self.family = family
        self.folder = folder
        loaded = load_model(folder, family)
        self.model: Any = loaded.model
        self.tokenizer = loaded.vocabulary
        vision = load_vision(folder, loaded.config, loaded.model, loaded.vocabulary)
        assert vision is not None
        self.vision: Vision = vision
        self.reference = corrected(load_reference(folder))

    def prompt(self, parts: Parts) -> Prompt:
        ids: list[int] = []
        real: list[int] = []
        spans: list[ImageSpan] = []
        opened, closed = ([self.tokenizer.specials[text]] if text else [] for text in AROUND[self.family])
        opened = [*self.tokenizer.encode(self.vision.image_encoder.before), *opened]
        closed = [*closed, *self.tokenizer.encode(self.vision.image_encoder.after)]
        for part in parts:
            if isinstance(part, str):
                new = self.tokenizer.encode(part)
            else:
                tokens = self.vision.image_encoder.tokens(part.pixels.shape[1], part.pixels.shape[0])
                new = [*opened, *tokens.ids, *closed]
                start = len(real) + len(opened) + tokens.start
                spans.append(ImageSpan(start, tokens.num_tokens, part))
            ids += new
            real += new
        for number, span in enumerate(spans):
            ids[span.start : span.start + span.num_tokens] = [-(1 << 30) - number] * span.num_tokens
        return Prompt(np.array(ids, np.int32), real, tuple(spans))

    def logits(self, prompt: Prompt, cuts: Sequence[int] = ()) -> Logits:
        """All positions, computed in rows that end at `cuts`, as a runner does."""
        caches = make_prompt_cache(self.model)
        edges = [0, *cuts, len(prompt.ids)]
        rows = []
        for start, end in pairwise(edges):
            ids = mx.array(prompt.ids[start:end])
            if self.vision.holds_image(start, end - start, prompt.spans):
                row = self.vision.embed(ids, start, prompt.spans)
                rows.append(self.vision.head(self.vision.call(row, caches)))
            else:
                shift = self.vision.shift(start, prompt.spans)
                turned = caches if shift == 0 else [Turned(cache, shift) for cache in caches]
                rows.append(self.model(ids[None], cache=turned))
        return np.array(mx.concatenate(rows, axis=1)[0])

    def expected(self, parts: Parts) -> Logits:
        images = [Pillow.fromarray(part.pixels) for part in parts if not isinstance(part, str)]
        ids = mx.array([self.prompt(parts).real_ids])
        if self.family != "gemma3":
            processor = Qwen3VLProcessor.from_pretrained(self.folder).image_processor
            inputs = processor(images)
            grid = mx.array(np.array(inputs["image_grid_thw"]))
            out = self.reference(ids, mx.array(np.array(inputs["pixel_values"])), image_grid_thw=grid)
            return np.array(out.logits[0])
        processor = Gemma3Processor.from_pretrained(self.folder).image_processor
        pixels = mx.array(np.stack(processor(images)["pixel_values"]))
        hidden = self.reference.get_input_embeddings(ids, pixels, mx.ones_like(ids)).inputs_embeds
        return self._both_ways(ids, hidden)

    def _both_ways(self, ids: mx.array, hidden: mx.array) -> Logits:
        """mlx-vlm's layers; the masks are Gemma's definition, which mlx-vlm leaves out when it generates."""
        language = self.reference.language_model
        is_soft = np.array(ids[0]) == self.tokenizer.specials["<image_soft_token>"]
        number = np.cumsum(np.diff(is_soft, prepend=False) & is_soft) * is_soft  # of the image a token is in
        query, key = np.indices((len(is_soft), len(is_soft)))
        own = (number[query] == number[key]) & is_soft[query] & is_soft[key]
        hidden = hidden * hidden.shape[-1] ** 0.5
        for index, layer in enumerate(language.model.layers):
            near = (key > query - WINDOW) | ((index + 1) % 3 == 0)
            hidden = layer(hidden, mx.array((near & (key <= query)) | own), None)
        return np.array(language.lm_head(language.model.norm(hidden))[0])


def corrected(reference: Any) -> Any:
    """mlx-vlm's model without two mistakes of mlx-vlm, both checked against transformers."""
    reference.config.hidden_size = 64  # it looks for this where published checkpoints do not have it
    if reference.config.model_type == "qwen3_vl_moe":
        for module in reference.vision_tower.modules():
            if hasattr(module, "act_fn"):  # what it has in the blocks belongs into the mergers
                module.act_fn = nn.GELU() if "norm" in module else nn.GELU(approx="tanh")
    return reference


class Turned:
    """A cache whose tokens are turned further than their index says: what a runner does for text after an image."""

    def __init__(self, cache: KVCache, shift: int) -> None:
        self._cache = cache
        self._shift = shift

    @property
    def offset(self) -> int:
        return int(self._cache.offset) + self._shift

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        both: tuple[mx.array, mx.array] = self._cache.update_and_fetch(keys, values)
        return both

    def make_mask(self, *args: Any, **kwargs: Any) -> Any:
        return self._cache.make_mask(*args, **kwargs)


@pytest.fixture(scope="module", params=sorted(WRITERS))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    folder = WRITERS[request.param](tmp_path_factory.mktemp("vision") / request.param)
    yield Case(request.param, folder)


@pytest.mark.parametrize(
    "parts",
    [
        ("What is this:", CAT),
        (CAT, " and the sea"),
        (CAT, CAT, "the rain"),
        PROMPT,
        ("The river runs to the sea, and the sea runs to the sky. " * 3, DOG, " what", CAT, " is" * 20),
    ],
)
def test_logits_are_those_of_mlx_vlm(case: Case, parts: Parts) -> None:
    found, expected = case.logits(case.prompt(parts)), case.expected(parts)
    assert found.shape == expected.shape
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_pieces_give_what_the_whole_gives(case: Case) -> None:
    """Text, image, text, image, and the last tokens one by one."""
    prompt = case.prompt(PROMPT)
    first, second = prompt.spans
    whole = case.logits(prompt)
    end = len(prompt.ids)
    for cuts in (
        [first.start],
        [first.start + first.num_tokens],
        [3, first.start, first.start + first.num_tokens, second.start, second.start + second.num_tokens],
        [second.start + second.num_tokens, *range(end - 4, end)],
    ):
        np.testing.assert_allclose(case.logits(prompt, cuts), whole, atol=1e-4)


def test_what_comes_after_an_image_depends_on_it_and_what_comes_before_does_not(case: Case) -> None:
    other = make_image(3, 40, 24)
    prompt, changed = case.prompt(PROMPT), case.prompt([other if part is CAT else part for part in PROMPT])
    before = prompt.spans[0].start
    found, differing = case.logits(prompt), case.logits(changed)
    np.testing.assert_allclose(found[:before], differing[:before], atol=1e-5)
    assert np.abs(found[before:] - differing[before:]).max(axis=-1).min() > 1e-3


def test_order_matters(case: Case) -> None:
    same_size = make_image(4, 40, 24)
    one, other = (case.logits(case.prompt((*both, " the sea")))[-1] for both in ((CAT, same_size), (same_size, CAT)))
    assert np.abs(one - other).max() > 1e-2


def test_an_image_is_encoded_once(case: Case) -> None:
    case.vision.features = FeatureCache(case.vision.features._encode, 1 << 20)
    for _ in range(3):
        case.logits(case.prompt((CAT, " and", CAT, " and", DOG)))
    assert (case.vision.features.num_misses, case.vision.features.num_hits) == (2, 7)


@pytest.mark.parametrize("width", [47, 64])
def test_prompts_have_the_processors_tokens(case: Case, width: int) -> None:
    image = make_image(5, width, 61)
    opened, closed = AROUND[case.family]
    kind: Any = Gemma3Processor if case.family == "gemma3" else Qwen3VLProcessor
    text = f"What is{opened}{case.vision.image_encoder.marker}{closed}the capital"
    inputs = kind.from_pretrained(case.folder)(
        images=[Pillow.fromarray(image.pixels)], text=text, add_special_tokens=False
    )
    assert case.prompt(("What is", image, "the capital")).real_ids == inputs["input_ids"].tolist()[0]


def test_rows_of_text_need_no_image_encoder(case: Case) -> None:
    prompt = case.prompt(PROMPT)
    first = prompt.spans[0]
    assert not case.vision.holds_image(0, first.start, prompt.spans)
    assert case.vision.holds_image(0, first.start + first.num_tokens, prompt.spans)
    assert not case.vision.holds_image(first.start + first.num_tokens, 2, prompt.spans)
    assert case.vision.shift(first.start, prompt.spans) == 0


def test_text_after_an_image_is_turned_less_than_its_index(tmp_path: Path) -> None:
    """An image of 3 rows and 5 columns has 15 tokens and takes up 5 positions."""
    case = Case("qwen3_vl", write_qwen3_vl(tmp_path / "model"))
    prompt = case.prompt((CAT, " the sea"))
    assert prompt.spans[0].num_tokens == 15
    assert case.vision.shift(len(prompt.ids), prompt.spans) == 5 - 15


def test_quantised_towers_are_loaded(case: Case, tmp_path: Path) -> None:
    """Language and tower in 8 bits, as mlx-vlm writes them."""

    def is_wanted(path: str, module: nn.Module) -> bool:
        return hasattr(module, "to_quantized") and module.weight.ndim == 2 and module.weight.shape[-1] % 32 == 0

    reference = load_reference(case.folder)
    nn.quantize(reference, group_size=32, bits=8, class_predicate=is_wanted)
    for file in case.folder.iterdir():
        if file.suffix == ".json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((case.folder / "config.json").read_text())
    config["quantization"] = {"group_size": 32, "bits": 8, "mode": "affine"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    reference.save_weights(str(tmp_path / "model.safetensors"))
    quantised = Case(case.family, tmp_path)
    tower = quantised.vision._family._tower.vision_tower  # type: ignore[attr-defined]
    assert any(isinstance(module, nn.QuantizedLinear) for module in tower.modules())
    found = quantised.logits(quantised.prompt(PROMPT))
    np.testing.assert_allclose(found, quantised.expected(PROMPT), atol=1e-3)
    assert 0 < np.median(np.abs(found - case.logits(case.prompt(PROMPT)))) < 0.1


def test_models_without_a_tower_have_no_image_encoder(case: Case) -> None:
    config = json.loads((case.folder / "config.json").read_text())
    for changed in ({**config, "vision_config": None}, {**config, "model_type": "llama"}):
        assert load_vision(case.folder, changed, case.model, case.tokenizer) is None


def test_a_tower_without_weights_is_none(case: Case, tmp_path: Path) -> None:
    """Text conversions keep the config of the tower they leave out."""
    config = json.loads((case.folder / "config.json").read_text())
    mx.save_safetensors(str(tmp_path / "model.safetensors"), {"language_model.model.norm.weight": mx.ones(64)})
    assert load_vision(tmp_path, config, case.model, case.tokenizer) is None


@pytest.mark.parametrize(
    ("family", "changed", "message"),
    [
        ("gemma3", {"num_hidden_layers": 3}, "other weights"),
        ("gemma3", {"image_size": 128}, "64"),
        ("gemma3", {"model_type": "clip"}, "not understood"),
        ("qwen3_vl", {"patch_size": 8}, "patch_size"),
        ("qwen3_vl", {"depth": 4}, "other weights"),
        ("qwen3_vl", {"depth": "many"}, "not understood"),
    ],
)
def test_towers_that_do_not_fit_are_refused(
    tmp_path: Path, family: str, changed: dict[str, object], message: str
) -> None:
    folder = WRITERS[family](tmp_path / family)
    loaded = load_model(folder, family)
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"] |= changed
    with pytest.raises(StartupError, match=message):
        load_vision(folder, config, loaded.model, loaded.vocabulary)
