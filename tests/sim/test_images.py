"""Prompts with images through the whole engine, on tiny models that see: an image is computed in one piece, whoever
else is there, and equal images are found in the cache.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("mlx_vlm")

from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.mlx.runner import MlxRunner
from proxy_inference_engine.types import Image, ImageSpan, Limits, Request, Sampling
from tests.model.answers import Answer, run, run_alone, step
from tests.tiny.image_models import make_image
from tests.tiny.image_runners import IMAGE_FAMILIES, make_image_runner

CACHE = 8 << 20
CAT, DOG, RIVER = make_image(1, 40, 24), make_image(2, 47, 61), make_image(3, 64, 64)
PROMPTS: tuple[tuple[int | Image, ...], ...] = (
    (20, 21, CAT, 22),
    (20, 21, DOG, 22, 23),
    (20, 21, CAT, DOG, 24, RIVER, 25),
    (RIVER, 30, *range(40, 80), CAT, 31),
    tuple(range(50, 90)),
)


@pytest.fixture(scope="module", params=IMAGE_FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module", params=[False, True], ids=["waits", "defers"])
def runner(
    request: pytest.FixtureRequest, family: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MlxRunner]:
    folder = tmp_path_factory.mktemp(family)
    runner = make_image_runner(family, folder, lanes=[Lane(3, 256), Lane(1, 512)], defers=request.param)
    yield runner
    runner.close()


def make_request(runner: MlxRunner, number: int, *, max_tokens: int = 8) -> Request:
    assert runner.image_encoder is not None
    ids: list[int] = []
    spans: list[ImageSpan] = []
    for part in PROMPTS[number]:
        if isinstance(part, int):
            ids.append(part)
            continue
        tokens = runner.image_encoder.tokens(part.pixels.shape[1], part.pixels.shape[0])
        spans.append(ImageSpan(len(ids) + tokens.start, tokens.num_tokens, part))
        ids += tokens.ids
    limits = Limits(max_tokens, ignore_eos=True)
    sampling = Sampling(seed=number, temperature=1.5)  # random weights like to repeat themselves
    return Request(f"r{number}", "t", tuple(ids), sampling, limits, images=tuple(spans))


def make_requests(runner: MlxRunner) -> list[Request]:
    return [make_request(runner, number) for number in range(len(PROMPTS))]


@pytest.fixture(scope="module")
def alone(runner: MlxRunner) -> dict[str, list[int]]:
    return {request.id: run_alone(runner, request).token_ids for request in make_requests(runner)}


def said(answers: dict[str, Answer]) -> dict[str, list[int]]:
    return {request_id: answer.token_ids for request_id, answer in answers.items()}


def test_images_are_seen(runner: MlxRunner, alone: dict[str, list[int]]) -> None:
    """Another image of the same size, at the same place, is another answer."""
    request = make_request(runner, 0)
    [span] = request.images
    other = replace(request, images=(replace(span, image=make_image(9, 40, 24)),))
    assert run_alone(runner, other).token_ids != alone["r0"]


@pytest.mark.parametrize("step_target_s", [0.001, 0.2])
def test_batched_is_alone(runner: MlxRunner, alone: dict[str, list[int]], step_target_s: float) -> None:
    """A grant that is smaller than an image is stretched to the end of it."""
    engine = StepEngine(runner, max_cache_bytes=0, step_target_s=step_target_s)
    assert said(run(engine, make_requests(runner), rng=random.Random(2))) == alone


@pytest.mark.parametrize("max_batch_tokens", [40, 100])
def test_batches_that_hold_less_than_all_images(
    runner: MlxRunner, alone: dict[str, list[int]], max_batch_tokens: int
) -> None:
    """An image that does not fit any more waits for the next step; one that never fits has a step to itself."""
    usual, runner.max_batch_tokens = runner.max_batch_tokens, max_batch_tokens
    try:
        assert said(run(StepEngine(runner, max_cache_bytes=0), make_requests(runner))) == alone
    finally:
        runner.max_batch_tokens = usual


def test_a_cache_hit_is_cold(runner: MlxRunner, alone: dict[str, list[int]]) -> None:
    engine = StepEngine(runner, max_cache_bytes=CACHE)
    requests = make_requests(runner)
    assert said(run(engine, requests)) == alone
    again = run(engine, requests)
    assert said(again) == alone
    for request in requests if runner.can_splice else ():
        assert again[request.id].num_cached_tokens == len(request.prompt_ids) - 1


def test_the_next_turn_finds_the_image(runner: MlxRunner, alone: dict[str, list[int]]) -> None:
    engine = StepEngine(runner, max_cache_bytes=CACHE)
    request = make_request(runner, 2)
    run(engine, [request])
    turn = replace(request, prompt_ids=(*request.prompt_ids, *alone["r2"], 33, 34))
    found = run(engine, [turn])[turn.id]
    assert found.num_cached_tokens == len(request.prompt_ids) + len(alone["r2"]) - 1
    assert found.token_ids == run_alone(runner, turn).token_ids


def test_another_image_is_not_found(runner: MlxRunner) -> None:
    """The tokens of two images of one size are the same, and what is cached of one is not the other's."""
    engine = StepEngine(runner, max_cache_bytes=CACHE)
    request = make_request(runner, 0)
    run(engine, [request])
    [span] = request.images
    other = replace(request, images=(replace(span, image=make_image(9, 40, 24)),))
    found = run(engine, [other])[other.id]
    assert found.num_cached_tokens <= span.start
    assert found.token_ids == run_alone(runner, other).token_ids


def test_preempted_is_uninterrupted(runner: MlxRunner, alone: dict[str, list[int]]) -> None:
    for max_cache_bytes in (0, CACHE):
        engine = StepEngine(runner, max_cache_bytes=max_cache_bytes)
        requests = make_requests(runner)
        answers = {request.id: Answer() for request in requests[:3]}
        for request in requests[:3]:
            engine.add(request)
        for _ in range(5):
            step(engine, answers)
        run(engine, [replace(request, tenant=request.id) for request in requests[3:]], answers=answers)
        assert engine.scheduler.counters.num_preemptions > 0
        assert said(answers) == alone
