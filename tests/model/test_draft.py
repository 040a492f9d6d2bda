"""A draft model over llama.cpp: found, proved, planned for, and the same answers with it as without."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.load import llama as load_llama
from proxy_inference_engine.models.load import load_engine
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner
from tests.model import gguf_files
from tests.model.answers import make_requests, run, run_alone
from tests.model.conftest import make_runner
from tests.model.gguf_files import write_bert, write_llama


def load(model: Path, draft: Path | str, **settings: Any) -> Worker:
    folder = model.parent
    config = Config(model=str(model), draft_model=str(draft), threads=1, cache_dir=folder, **settings)
    return load_engine(config)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_llama(tmp_path / "tiny.gguf")


# Tiny files


def test_a_draft_model_of_the_same_vocabulary_is_taken(tiny: Path, tmp_path: Path) -> None:
    worker = load(tiny, write_llama(tmp_path / "small.gguf", seed=9), draft_tokens=3)
    try:
        engine = worker._engine
        requests = make_requests(engine.runner, max_tokens=12)[::2]
        run(engine, requests)
        assert engine.stats.total_model_draft_tokens > 0
    finally:
        worker.stop()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("<more>",), r"draft_model 'other' does not have the vocabulary of the model: it has 261 tokens, not 260"),
        ((), r"draft_model 'other' .*: its token 3 is '<cut>', not '<sep>'"),
    ],
)
def test_another_vocabulary_is_refused_in_one_line(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    other = _write_other(tmp_path / "other.gguf", monkeypatch, words)
    with pytest.raises(StartupError, match=message) as caught:
        load(tiny, other)
    assert "\n" not in caught.value.message


def _write_other(path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> Path:
    original = gguf_files._byte_vocabulary()
    tokens = [*original.tokens, *words] if words else [*original.tokens[:3], "<cut>", *original.tokens[4:]]
    types = [*original.types, *original.types[3:4] * len(words)]
    changed = original._replace(tokens=tokens, types=types, scores=[0.0] * len(tokens))
    monkeypatch.setattr(gguf_files, "_byte_vocabulary", lambda: changed)
    return write_llama(path)


def test_what_cannot_draft_is_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"draft_model: model '.*nowhere.gguf': no such file"):
        load(tiny, tmp_path / "nowhere.gguf")
    with pytest.raises(StartupError, match=r"draft_model 'bert' does not have the vocabulary"):
        load(tiny, write_bert(tmp_path / "bert.gguf"))
    with pytest.raises(StartupError, match=r"draft_model 'folder' has to be a GGUF file"):
        load(tiny, _write_folder(tmp_path / "folder"))


def test_only_llama_cpp_takes_a_draft_model(tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlx_lm")
    with pytest.raises(StartupError, match=r"draft_model needs llama.cpp"):
        load(_write_folder(tmp_path / "folder"), tiny)


def _write_folder(folder: Path) -> Path:
    """As much of a model in safetensors as is looked at before it is loaded."""
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return folder


def test_the_command_says_why_and_ends(tiny: Path, tmp_path: Path) -> None:
    words = ["serve", "--port", "0", "--model", str(tiny), "--draft-model", str(write_bert(tmp_path / "b.gguf"))]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    line = [sys.executable, "-m", "proxy_inference_engine", *words]
    ended = subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=60)
    assert ended.returncode != 0 and ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1 and "does not have the vocabulary" in ended.stderr


@pytest.mark.parametrize("free", [1 << 30, 6 << 20])
def test_its_kv_is_counted(tiny: Path, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(load_llama, "available_memory", lambda: free)
    worker = load(tiny, tiny)
    try:
        drafting = worker._engine.drafting
        assert drafting is not None
        draft = drafting._runner
        assert draft is not None and draft.lanes == worker.lanes
        num_tokens = sum(lane.num_slots * lane.slot_tokens for lane in worker.lanes)
        token_bytes = worker.info.kv_bytes_per_token + draft.info.kv_bytes_per_token
        assert num_tokens * token_bytes <= 0.4 * free
    finally:
        worker.stop()


# The bundled model


@pytest.fixture(scope="module")
def twin(weights: Path) -> Iterator[LlamaRunner]:
    runner = make_runner(weights, is_exact=True)
    yield runner
    runner.close()


@pytest.mark.model
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_exact_answers_are_the_same_with_drafts(
    exact_runner: LlamaRunner, twin: LlamaRunner, temperature: float
) -> None:
    """Under a clock that stands still drafts always seem to pay."""
    requests = make_requests(exact_runner, max_tokens=30, temperature=temperature)[:5]
    alone = {request.id: run_alone(exact_runner, request) for request in requests}
    engine = StepEngine(exact_runner, max_cache_bytes=64 << 20, clock=lambda: 0.0)
    engine.draft_with(twin, 8)
    answers = run(engine, requests, rng=random.Random(4))
    for request_id, answer in answers.items():
        assert answer.token_ids == alone[request_id].token_ids
        assert answer.logprobs == alone[request_id].logprobs
    num_drafted = engine.stats.total_model_draft_tokens
    assert num_drafted > 40 and engine.stats.total_model_draft_tokens_accepted > 0.97 * num_drafted
    assert engine.drafting is not None and engine.drafting._slots.num_held == 0
