"""The runner over every llama.cpp that is installed: the bundled model's words, batches, and KV that comes and goes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from proxy_inference_engine.runners.base import Lane, Row, TokenIds
from proxy_inference_engine.runners.llama_cpp.library import Library
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings

pytestmark = pytest.mark.model

PROMPT = "<|im_start|>user\nWhat is the capital of France? Answer briefly.<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def runner(library: Library, weights: Path) -> Iterator[LlamaRunner]:
    settings = Settings(name="bundled", lanes=(Lane(3, 256),), threads=2, is_exact=True, cache_bytes=64 << 20)
    runner = LlamaRunner(Model(weights, library=library, is_exact=True), settings)
    yield runner
    runner.close()


def prompt_of(runner: LlamaRunner) -> TokenIds:
    """With the control tokens, which `encode` never makes."""
    vocabulary, ids = runner.tokenizer, []
    for part in PROMPT.replace("<|im_start|>", "\0<|im_start|>\0").replace("<|im_end|>", "\0<|im_end|>\0").split("\0"):
        ids += [vocabulary.specials[part]] if part in vocabulary.specials else vocabulary.encode(part)
    return np.array(ids, np.int32)


def go_on(runner: LlamaRunner, slot: int, start: int, token: int, count: int) -> list[int]:
    """The likeliest tokens from here on."""
    found = []
    for position in range(start, start + count):
        (logits,) = runner.forward([Row(slot, position, np.array([token], np.int32), 1)])
        token = int(logits[0].argmax())
        found.append(token)
    return found


def test_it_answers(runner: LlamaRunner) -> None:
    ids = prompt_of(runner)
    (logits,) = runner.forward([Row(0, 0, ids, 1)])
    first = int(logits[0].argmax())
    answer = [first, *go_on(runner, 0, len(ids), first, 8)]
    runner.release(0)
    assert "Paris" in b"".join(map(runner.tokenizer.token_bytes, answer)).decode()


def test_in_a_batch_and_from_kv_that_moved_it_is_the_same_to_the_bit(runner: LlamaRunner) -> None:
    assert runner.can_splice
    ids = prompt_of(runner)
    (alone,) = (logits.copy() for logits in runner.forward([Row(0, 0, ids, 1)]))
    segment = runner.export(0, 0, len(ids) - 1)
    runner.release(0)
    others = [Row(slot, 0, ids[slot:], 1) for slot in (1, 2)]
    batched = runner.forward([Row(0, 0, ids, 1), *others])[0].copy()
    runner.release(0)
    runner.restore(0, [segment], len(ids) - 1)
    (moved,) = runner.forward([Row(0, len(ids) - 1, ids[-1:], 1)])
    assert np.array_equal(batched, alone) and np.array_equal(moved, alone)
    segment.free()
    for slot in range(3):
        runner.release(slot)
