"""From a configuration to an engine on llama.cpp: what the file says, what the machine has, what the operator wants."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.errors import QueueFull, StartupError
from proxy_inference_engine.models import watcher as watcher_module
from proxy_inference_engine.models.load import llama as load_llama
from proxy_inference_engine.models.load import load_engine, load_words
from proxy_inference_engine.models.profile import profile
from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.llama_cpp import devices
from proxy_inference_engine.runners.llama_cpp.library import start
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from proxy_inference_engine.served.model import ServedModel
from tests.model.gguf_files import write_llama
from tests.requests import make_request
from tests.unit.models.download.pulling import Watcher

SAMPLING = {
    "general.sampling.temp": 0.5,
    "general.sampling.top_k": 7.0,
    "general.sampling.top_p": 0.75,
    "general.sampling.min_p": 0.25,
    "general.sampling.penalty_repeat": 1.5,
}
TEMPLATE = (
    "{# " + "x" * 5000 + " #}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
)


@contextmanager
def loaded(path: Path, **settings: Any) -> Iterator[Worker]:
    worker = load_engine(Config(model=str(path), threads=1, cache_dir=path.parent, **settings))
    try:
        yield worker
    finally:
        worker.stop()


def fingerprint(path: Path, **settings: Any) -> str:
    runner = LlamaRunner(Model(path), Settings(name="x", lanes=(Lane(1, 256),), threads=1, **settings))
    try:
        return runner.info.fingerprint
    finally:
        runner.close()


def test_the_file_says_how_it_wants_to_be_sampled(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "own.gguf", facts=SAMPLING)
    with loaded(path, kv_memory=1 << 20, cache_memory=0) as worker:
        defaults = ServedModel.of(worker, Config()).defaults
        assert defaults == profile("own", "llama", worker.info.generation)
        assert (defaults.temperature, defaults.top_k, defaults.top_p, defaults.min_p) == (0.5, 7, 0.75, 0.25)
        assert defaults.repetition_penalty == 1.5


def test_a_long_template_is_read_whole(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "long.gguf", facts={"tokenizer.chat_template": TEMPLATE})
    assert load_words(Config(model=str(path))).chat_template == TEMPLATE
    with loaded(path, kv_memory=1 << 20, cache_memory=0) as worker:
        assert worker.info.chat_template == TEMPLATE


def test_of_several_templates_two_are_read(tmp_path: Path) -> None:
    """One for every chat, one for chats with tools; what has another name may be as broken as it likes."""
    listing = "{% for t in tools %}<|tool|>{{ t.function.name }}{% endfor %}{{ messages[0].content }}"
    facts = {"": TEMPLATE, ".tool_use": listing, ".rag": "{% if documents %}"}
    path = write_llama(tmp_path / "m.gguf", facts={f"tokenizer.chat_template{key}": facts[key] for key in facts})
    words = load_words(Config(model=str(path)))
    assert (words.chat_template, words.tool_template) == (TEMPLATE, listing)
    with loaded(path, kv_memory=1 << 20, cache_memory=0) as worker:
        source = ServedModel.of(worker, Config()).renderer._template.source
        assert source.endswith(f"{listing}{{% else %}}{TEMPLATE}{{% endif %}}")


def test_a_fingerprint_is_of_weights_and_settings(tmp_path: Path) -> None:
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
    one, same = write_llama(tmp_path / "a" / "m.gguf"), write_llama(tmp_path / "b" / "m.gguf")
    other = write_llama(tmp_path / "c" / "m.gguf", seed=6)
    assert one.stat().st_size == other.stat().st_size
    assert fingerprint(one) == fingerprint(same)
    assert len({fingerprint(one), fingerprint(other), fingerprint(one, has_flash=False)}) == 3


@pytest.mark.parametrize(("free", "num_slots"), [(1 << 30, 16), (4 << 20, 12)])
def test_memory_is_shared_out_of_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, num_slots: int
) -> None:
    monkeypatch.setattr(load_llama, "available_memory", lambda: free)
    with loaded(write_llama(tmp_path / "m.gguf")) as worker:
        lanes, token_bytes = worker.lanes, worker.info.kv_bytes_per_token
        assert sum(lane.num_slots * lane.slot_tokens for lane in lanes) * token_bytes <= 0.4 * free
        assert lanes[0] == Lane(num_slots, 512)
        assert worker.stats().max_cached_bytes == int(0.05 * free)


async def test_the_operator_s_limits_arrive(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "m.gguf")
    limits = {"max_waiting": 2, "slots": 1, "context": 300, "step_target_ms": 50.0, "queue_timeout_seconds": 7.0}
    with loaded(path, kv_memory=1 << 20, cache_memory=4096, **limits) as worker:
        assert worker.context_tokens == 512 and worker.lanes == (Lane(1, 512),)  # in steps of 256
        assert worker.stats().max_cached_bytes == 4096
        assert worker._engine.pace.target_s == 0.05 and worker._engine._queue_timeout_s == 7.0
        streams = [worker.submit(make_request(b"a", id="r0", max_tokens=500))]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            for number in range(1, 20):
                streams.append(worker.submit(make_request(b"a", id=f"r{number}", max_tokens=500)))
        for stream in streams:
            stream.cancel()


def test_long_lanes_are_made_when_they_are_first_used(tmp_path: Path) -> None:
    lanes = (Lane(2, 256), Lane(1, 512))
    runner = LlamaRunner(Model(write_llama(tmp_path / "m.gguf")), Settings(name="x", lanes=lanes, threads=1))
    ids = np.arange(4, 300, dtype=np.int32) % 200 + 4
    try:
        assert [context is not None for context in runner._contexts] == [True, False]
        runner.forward([Row(2, 0, ids, 1)])
        assert [context is not None for context in runner._contexts] == [True, True]
    finally:
        runner.close()


def test_a_context_that_cannot_be_made_is_one_plain_line(tmp_path: Path) -> None:
    """The heads of this model are too narrow for the K cache of exact mode."""
    with pytest.raises(StartupError, match=r"could not make a context .*without --exact"):
        load_engine(Config(model=str(write_llama(tmp_path / "m.gguf")), threads=1, exact=True))


@pytest.mark.parametrize(("wanted", "layers"), [(None, 999), (-1, 999), (0, 0), (7, 7)])
def test_all_layers_go_to_a_gpu_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: int | None, layers: int
) -> None:
    """On a machine with a card; without one the library ignores the number, so it is read where it is handed over."""
    given: list[int] = []
    llama = start().binding
    original = llama.llama_model_load_from_file

    def note(path: bytes, params: Any) -> Any:
        given.append(params.n_gpu_layers)
        return original(path, params)

    monkeypatch.setattr(llama, "llama_model_load_from_file", note)
    monkeypatch.setattr(devices, "free_gpu_bytes", lambda llama: 8 << 30)
    chosen = {} if wanted is None else {"gpu_layers": wanted}
    with loaded(write_llama(tmp_path / "m.gguf"), kv_memory=1 << 20, cache_memory=0, **chosen):
        assert given[-1] == layers


def test_long_metadata_is_read_whole(tmp_path: Path) -> None:
    model = Model(write_llama(tmp_path / "m.gguf", facts={"general.note": "ä" * 5000}), vocab_only=True)
    assert model.metadata("general.note") == "ä" * 5000
    assert model.metadata("general.name.of.nothing") is None
    model.close()


def test_a_long_start_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher_module, "_MOMENT_S", -1.0)
    path, watcher = write_llama(tmp_path / "m.gguf"), Watcher()
    load_engine(Config(model=str(path), threads=1, cache_dir=tmp_path), watcher).stop()
    total = path.stat().st_size
    assert watcher.shown[-1] == (total, total)
    assert watcher.shown == sorted(watcher.shown)
