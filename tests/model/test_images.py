"""Images on llama.cpp: tiny models with mmproj files, against the library's own evaluation, and through the engine."""

import ctypes
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.sequence import Sequence as Life
from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.llama_cpp.binding import Binding, floats, handle, mtmd_input_text
from proxy_inference_engine.runners.llama_cpp.library import Library
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from proxy_inference_engine.runners.llama_cpp.vision.runs import Vision, load_vision
from proxy_inference_engine.types import Image, ImageSpan, Request
from tests.model.answers import run
from tests.model.mmproj_files import MARKERS, write_model
from tests.model.reference import declared, opened
from tests.requests import make_request

KINDS = ("gemma3", "idefics3", "qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger")
LANES = (Lane(4, 512), Lane(1, 1024))

Logits = NDArray[np.float32]
Parts = Sequence[str | Image]


def make_image(seed: int, width: int, height: int) -> Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image(hashlib.blake2b(f"{seed} {width} {height}".encode(), digest_size=32).digest(), pixels)


CAT, DOG = make_image(1, 40, 24), make_image(2, 47, 61)
PARTS: Parts = ("What is this: ", CAT, " and what does it see there: ", DOG, " say it.")


@dataclass
class Case:
    """One model, loaded; the tests of a kind share it."""

    kind: str
    path: Path
    model: Model
    vision: Vision
    runner: LlamaRunner

    def request(self, parts: Parts, **options: object) -> Request:
        """What the edge makes of texts and images."""
        tokenizer, image_encoder = self.runner.tokenizer, self.vision.image_encoder
        ids, spans = [1], []
        for part in parts:
            if isinstance(part, str):
                ids += tokenizer.encode(part)
                continue
            height, width, _ = part.pixels.shape
            tokens = image_encoder.tokens(width, height)
            opened, closed = self._frame()
            spans.append(ImageSpan(len(ids) + len(opened) + tokens.start, tokens.num_tokens, part))
            ids += [*opened, *tokens.ids, *closed]
        return replace(make_request(ids, **options), images=tuple(spans))  # type: ignore[arg-type]

    def _frame(self) -> tuple[list[int], list[int]]:
        """What a template writes around the marker."""
        if not self.kind.startswith("qwen"):
            return [], []
        _, opened, closed = (self.runner.tokenizer.specials[name] for name in MARKERS[self.kind])
        return [opened], [closed]

    def logits(self, request: Request, *cuts: int, slot: int = 0, start: int = 0) -> Logits:
        """Those of the last token, computed in as many passes as there are cuts and one."""
        ids = sequence_ids(request)
        for first, last in zip((start, *cuts), (*cuts, len(ids)), strict=True):
            (found,) = self.runner.forward([Row(slot, first, ids[first:last], 1, request.images)])
        return np.array(found[0])


def sequence_ids(request: Request) -> NDArray[np.int32]:
    life = Life(request, 0, None, 0, 0.0)  # type: ignore[arg-type]
    return life.ids.copy()


@pytest.fixture(scope="module", params=KINDS)
def loaded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, library: Library
) -> Iterator[Case]:
    path = write_model(tmp_path_factory.mktemp(request.param), request.param)
    model = Model(path, library=library)
    vision = load_vision(path.with_name("mmproj-tiny-f16.gguf"), model, threads=1, has_gpu=False)
    settings = Settings(name="tiny", lanes=LANES, threads=1, cache_bytes=8 << 20)
    runner = LlamaRunner(model, settings, vision)
    yield Case(request.param, path, model, vision, runner)
    runner.close()


@pytest.fixture
def case(loaded: Case) -> Iterator[Case]:
    yield loaded
    for slot in range(sum(lane.num_slots for lane in LANES)):
        loaded.runner.release(slot)


def reference(case: Case, parts: Parts) -> tuple[Logits, int]:
    """The library's own way: its tokens, its evaluation; the last logits, and how many tokens it counts."""
    llama = case.model.llama
    marker = llama.mtmd_default_marker()
    text = b"".join(marker if isinstance(part, Image) else part.encode() for part in parts)
    images = [part for part in parts if isinstance(part, Image)]
    bitmaps = (ctypes.c_void_p * len(images))(*(bitmap_of(llama, image) for image in images))
    chunks = llama.mtmd_input_chunks_init()
    given = mtmd_input_text(text, len(text), True, True)
    image_encoder = case.vision._projector._context
    assert llama.mtmd_tokenize(image_encoder, chunks, ctypes.byref(given), bitmaps, len(images)) == 0
    assert chunks is not None and image_encoder is not None
    count = declared(llama, "mtmd_helper_get_n_tokens", ctypes.c_size_t, handle)(chunks)
    numbers = (ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.c_bool, ctypes.c_void_p)
    evaluate = declared(llama, "mtmd_helper_eval_chunks", ctypes.c_int, handle, handle, handle, *numbers)
    last_logits = declared(llama, "llama_get_logits_ith", ctypes.c_void_p, handle, ctypes.c_int32)
    past = ctypes.c_int32(0)
    sizes = {"n_ctx": 512, "n_batch": 512, "n_ubatch": 512, "n_threads": 1, "n_threads_batch": 1}
    with opened(case.model, flash_attn_type=1, **sizes) as context:
        assert evaluate(image_encoder, context, chunks, 0, 0, 512, True, ctypes.byref(past)) == 0
        logits = floats(last_logits(context, -1), case.runner.tokenizer.num_tokens).copy()
    for bitmap in bitmaps:
        llama.mtmd_bitmap_free(bitmap)
    llama.mtmd_input_chunks_free(chunks)
    return logits, count


def bitmap_of(llama: Binding, image: Image) -> Any:
    height, width, _ = image.pixels.shape
    return llama.mtmd_bitmap_init(width, height, image.pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8)))


@pytest.mark.parametrize("parts", [("see ", CAT, " now"), PARTS, (DOG, " that"), ("two ", CAT, DOG, "!")])
def test_logits_are_those_of_the_library(case: Case, parts: Parts) -> None:
    expected, num_tokens = reference(case, parts)
    request = case.request(parts)
    got = case.logits(request)
    assert len(request.prompt_ids) == num_tokens
    # The library alone rounds queries to halves; our attention does not.
    np.testing.assert_allclose(got, expected, atol=1e-3)
    assert got.argmax() == expected.argmax()


def test_another_image_has_other_logits(case: Case) -> None:
    first = case.logits(case.request(("see ", CAT, " now")))
    case.runner.release(0)
    changed = Image(b"\1" * 32, 255 - CAT.pixels)
    assert np.abs(case.logits(case.request(("see ", changed, " now"))) - first).max() > 0.1


def test_passes_may_end_around_images(case: Case) -> None:
    request = case.request(PARTS)
    first, second = request.images
    expected = case.logits(request)
    cuts = {
        (first.start,),
        (first.start + first.num_tokens,),
        (3, first.start, second.start + second.num_tokens),
        (second.start - 1, second.start, second.start + second.num_tokens, len(request.prompt_ids) - 1),
    }
    for ends in cuts:
        case.runner.release(0)
        np.testing.assert_allclose(case.logits(request, *ends), expected, atol=1e-3)


def test_a_pass_ends_inside_an_image_only_where_that_is_sound(case: Case) -> None:
    request = case.request(PARTS)
    expected = case.logits(request)
    case.runner.release(0)
    first, second = request.images
    cuts = (first.start + 5, second.start + second.num_tokens - 3)
    if case.kind == "gemma3":
        with pytest.raises(RuntimeError, match="as a whole"):
            case.logits(request, *cuts)
    else:
        np.testing.assert_allclose(case.logits(request, *cuts), expected, atol=1e-3)


def test_rows_beside_each_other_see_their_own_images(case: Case) -> None:
    requests = [
        case.request(PARTS),
        case.request(("hello there",)),
        case.request(("see ", DOG, " now")),
        case.request(("see ", CAT)),
    ]
    alone = []
    for request in requests:
        alone.append(case.logits(request))
        case.runner.release(0)
    rows = [Row(slot, 0, sequence_ids(request), 1, request.images) for slot, request in enumerate(requests)]
    together = [logits[0].copy() for logits in case.runner.forward(rows)]
    np.testing.assert_allclose(together, alone, atol=1e-3)


def test_every_position_has_its_logits(case: Case) -> None:
    """Those of the image's own positions too, in the order of the tokens."""
    request = case.request(("see ", CAT, " now"))
    ids = sequence_ids(request)
    (every,) = case.runner.forward([Row(0, 0, ids, len(ids), request.images)])
    assert every.shape == (len(ids), case.runner.tokenizer.num_tokens)
    every = every.copy()
    (span,) = request.images
    for end in (span.start, span.start + span.num_tokens, len(ids)):
        case.runner.release(0)
        (last,) = case.runner.forward([Row(0, 0, ids[:end], 1, request.images)])
        np.testing.assert_allclose(every[end - 1], last[0], atol=1e-3)


def test_kv_with_images_moves(case: Case) -> None:
    """Out of one slot, into another, and on from there; where KV can be cut, into one of another lane too."""
    request = case.request(PARTS)
    expected = case.logits(request)
    case.runner.release(0)
    num_tokens = len(request.prompt_ids) - 1
    for target in (2, LANES[0].num_slots) if case.runner.can_splice else (2,):
        case.runner.forward([Row(0, 0, sequence_ids(request)[:num_tokens], 0, request.images)])
        segment = case.runner.export(0, 0, num_tokens)
        case.runner.release(0)
        case.runner.restore(target, [segment], num_tokens)
        segment.free()
        np.testing.assert_allclose(case.logits(request, slot=target, start=num_tokens), expected, atol=1e-3)


def test_kv_is_cut_beside_images(case: Case) -> None:
    if not case.runner.can_splice:
        pytest.skip("whole sequences only")
    request = case.request(PARTS)
    expected = case.logits(request)
    first, second = request.images
    for start, end in ((0, first.start), (0, first.start + first.num_tokens), (0, second.start + second.num_tokens)):
        segment = case.runner.export(0, start, end)
        case.runner.restore(1, [segment], end)
        segment.free()
        np.testing.assert_allclose(case.logits(request, slot=1, start=end), expected, atol=1e-3)


def test_tokens_after_images_are_forgotten(case: Case) -> None:
    """Positions are not indices where an image counts rows and columns."""
    request = case.request(PARTS)
    num_tokens = len(request.prompt_ids) - 1
    expected = case.logits(request)
    for end in (num_tokens, request.images[1].start):
        case.runner.truncate(0, end)
        if end == num_tokens:
            wrong = np.array([7, 8, 9], np.int32)
            case.runner.forward([Row(0, end, wrong, 1, request.images)])
            case.runner.truncate(0, end)
        np.testing.assert_allclose(case.logits(request, start=end), expected, atol=1e-3)


def answers(engine: StepEngine, *requests: Request) -> dict[str, list[int]]:
    return {key: answer.token_ids for key, answer in run(engine, list(requests)).items()}


def test_batched_is_alone(case: Case) -> None:
    requests = [
        case.request(parts, id=name, max_tokens=6)
        for name, parts in (("both", PARTS), ("cat", ("see ", CAT)), ("dog", ("see ", DOG, " now")), ("no", ("x y",)))
    ]
    alone: dict[str, list[int]] = {}
    for request in requests:
        alone |= answers(StepEngine(case.runner, max_cache_bytes=0), request)
    assert answers(StepEngine(case.runner, max_cache_bytes=0), *requests) == alone
    assert alone["cat"] != alone["dog"]


def test_cached_is_cold(case: Case) -> None:
    """A conversation goes on behind its images; another image in the same place is another prefix."""
    first = case.request(PARTS, id="first", max_tokens=6)
    engine = StepEngine(case.runner, max_cache_bytes=4 << 20)
    answer = answers(engine, first)["first"]
    more = (*first.prompt_ids, *answer, *case.runner.tokenizer.encode(" and then?"))
    second = replace(first, id="second", prompt_ids=more)
    cold = answers(StepEngine(case.runner, max_cache_bytes=0), second)["second"]
    warm = run(engine, [second])["second"]
    assert warm.token_ids == cold
    assert warm.num_cached_tokens == len(first.prompt_ids) + len(answer) - 1
    old, last = second.images
    other = replace(second, id="other", images=(old, replace(last, image=make_image(3, 47, 61))))
    found = run(engine, [other])["other"]
    if case.runner.can_splice:
        assert found.num_cached_tokens == last.start
    else:  # a snapshot of the prompt, from before the image
        assert found.num_cached_tokens <= last.start
    assert found.token_ids == answers(StepEngine(case.runner, max_cache_bytes=0), other)["other"]


def test_an_image_is_encoded_once(case: Case) -> None:
    image = make_image(9, 33, 33)
    before = case.vision.num_encoded
    for parts in (("a ", image, " b"), (image, image), ("c", image)):
        case.logits(case.request(parts))
        case.runner.release(0)
    assert case.vision.num_encoded == before + 1


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (1, 51), (100_000, 90_000)])
def test_sizes_that_cannot_be_seen(case: Case, size: tuple[int, int]) -> None:
    with pytest.raises(InvalidRequest, match="cannot be seen"):
        case.vision.image_encoder.tokens(*size)


@pytest.mark.parametrize("size", [(1, 1), (1, 50), (50, 1), (9, 450), (333, 7), (4000, 3000)])
def test_counted_is_encoded(case: Case, size: tuple[int, int]) -> None:
    """What is counted without pixels is what pixels become; or the image is refused."""
    try:
        tokens = case.vision.image_encoder.tokens(*size)
    except InvalidRequest as error:
        assert "the limit is" in error.message
        return
    if size[0] * size[1] > 1 << 20:
        return
    request = case.request((make_image(4, *size), "?"))
    assert request.images[0].num_tokens == tokens.num_tokens
    case.logits(request)
