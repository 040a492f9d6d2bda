"""The bundled model as a Mac serves it: converted for MLX, the same to clients; and what happens where that fails."""

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlx_lm")

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.engines import Machine
from proxy_inference_engine.models.load import load_engine
from proxy_inference_engine.models.profile import profile
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner
from proxy_inference_engine.runners.mlx.runner import MlxRunner
from proxy_inference_engine.types import Token
from tests.requests import make_request
from tests.tiny.gguf import write_gguf
from tests.unit.models.pulling import Watcher

pytestmark = pytest.mark.model

MAC, LINUX = Machine("darwin", "arm64"), Machine("linux", "x86_64")


@contextmanager
def loaded(machine: Machine, watcher: Watcher | None = None, **settings: Any) -> Iterator[Worker]:
    worker = load_engine(Config(threads=2, context=256, **settings), watcher, machine)
    try:
        yield worker
    finally:
        worker.stop()


def said(worker: Worker, text: str, num_tokens: int) -> list[int]:
    async def ask() -> list[int]:
        stream = worker.submit(make_request(worker.tokenizer.encode(text), max_tokens=num_tokens))
        return [item.output.id async for items in stream for item in items if isinstance(item.output, Token)]

    return asyncio.run(ask())


def test_a_mac_serves_the_bundled_model_with_mlx(tmp_path: Path) -> None:
    """Name, template, ends, profile and what is said are those of llama.cpp; the second start converts nothing."""
    watcher = Watcher()
    prompt = "The capital of France is"
    with loaded(LINUX, cache_dir=tmp_path) as worker:
        assert isinstance(worker._engine.runner, LlamaRunner)
        theirs, ends, expected = worker.info, worker.tokenizer.end_ids, said(worker, prompt, 3)
    with loaded(MAC, watcher, cache_dir=tmp_path) as worker:
        assert isinstance(worker._engine.runner, MlxRunner)
        ours = worker.info
        assert worker.tokenizer.end_ids == ends
        assert said(worker, prompt, 3) == expected != []
    with loaded(MAC, watcher, cache_dir=tmp_path) as worker:
        assert worker.info == ours
    assert (ours.name, ours.architecture, ours.chat_template) == (
        theirs.name,
        theirs.architecture,
        theirs.chat_template,
    )
    assert profile(ours.name, ours.architecture, ours.generation) == profile(
        theirs.name, theirs.architecture, theirs.generation
    )
    assert sum("converting the weights for MLX" in line for line in watcher.lines) == 1


def test_what_a_file_says_of_sampling_is_kept(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", facts={"general.sampling.temp": 0.5, "general.sampling.top_k": 7})
    for engine in ("llama.cpp", "mlx"):
        with loaded(LINUX, model=str(path), engine=engine, cache_dir=tmp_path) as worker:
            found = profile(worker.info.name, worker.info.architecture, worker.info.generation)
            assert (found.temperature, found.top_k) == (0.5, 7)
            assert worker.info.name == "model"


def test_a_conversion_that_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """On a Mac llama.cpp runs the file, with one warning; who insists on MLX is told why."""
    path = write_gguf(tmp_path / "model.gguf", "Q8_0")
    settings: dict[str, Any] = {"model": str(path), "cache_dir": path}  # no folder can be made below a file
    with caplog.at_level(logging.WARNING), loaded(MAC, **settings) as worker:
        assert isinstance(worker._engine.runner, LlamaRunner)
        assert len(said(worker, "The river", 3)) == 3
    (record,) = caplog.records
    assert re.fullmatch(r"llama\.cpp runs model, because MLX cannot: '.*-mlx-f32': Not a directory", record.message)
    with pytest.raises(StartupError, match="Not a directory"), loaded(MAC, engine="mlx", **settings):
        pass


def test_a_folder_that_mlx_cannot_load(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The file says one thing of its sizes and has another: neither engine takes it, and both are asked."""
    settings: dict[str, Any] = {
        "model": str(write_gguf(tmp_path / "model.gguf", "Q8_0", facts={"llama.feed_forward_length": 64})),
        "cache_dir": tmp_path,
    }
    with pytest.raises(StartupError, match="mlx-lm cannot load"), loaded(MAC, engine="mlx", **settings):
        pass
    with pytest.raises(StartupError, match=r"llama\.cpp cannot load"), loaded(MAC, **settings):
        pass
    assert sum(record.levelno == logging.WARNING for record in caplog.records) == 1
