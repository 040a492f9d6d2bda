"""The bundled model without a word about engines: llama.cpp runs the file, MLX the folder, clients see the same."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlx_lm")

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.models.load import load_engine
from proxy_inference_engine.models.profile import profile
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner
from proxy_inference_engine.runners.mlx.runner import MlxRunner
from proxy_inference_engine.types import Token
from tests.requests import make_request

pytestmark = pytest.mark.model


@contextmanager
def loaded(**settings: Any) -> Iterator[Worker]:
    worker = load_engine(Config(threads=2, context=256, **settings))
    try:
        yield worker
    finally:
        worker.stop()


def said(worker: Worker, text: str, num_tokens: int) -> list[int]:
    async def ask() -> list[int]:
        stream = worker.submit(make_request(worker.tokenizer.encode(text), max_tokens=num_tokens))
        return [item.output.id async for items in stream for item in items if isinstance(item.output, Token)]

    return asyncio.run(ask())


def test_the_kind_of_the_file_chooses_and_nobody_notices(bundled_folder: Path, tmp_path: Path) -> None:
    """Name, template, ends, profile and what is said are the same from both engines."""
    prompt = "The capital of France is"
    with loaded(cache_dir=tmp_path) as worker:
        assert isinstance(worker._engine.runner, LlamaRunner)
        theirs, ends, expected = worker.info, worker.tokenizer.end_ids, said(worker, prompt, 3)
    with loaded(model=str(bundled_folder), cache_dir=tmp_path) as worker:
        assert isinstance(worker._engine.runner, MlxRunner)
        ours = worker.info
        assert worker.tokenizer.end_ids == ends
        assert said(worker, prompt, 3) == expected != []
    assert (ours.name, ours.architecture, ours.chat_template) == (
        theirs.name,
        theirs.architecture,
        theirs.chat_template,
    )
    assert profile(ours.name, ours.architecture, ours.generation) == profile(
        theirs.name, theirs.architecture, theirs.generation
    )
