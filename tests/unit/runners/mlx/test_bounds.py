"""Memory of the MLX engine under more than it can hold: within what was planned, whoever comes, and given back."""

import gc
from pathlib import Path

import mlx.core as mx
import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.errors import ContextLengthExceeded, StartupError
from proxy_inference_engine.models.load import mlx as load_mlx
from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.runners.mlx.library import state_bytes
from proxy_inference_engine.types import Finished, Limits, Request, Sampling
from tests.tiny.runners import folder_of

KV, CACHE = 3 << 20, 1 << 20
RECURRENT = ("lfm2", "qwen3_next")
PASSING = 1 << 20  # for what a step computes besides


def ask(name: str, first: int, length: int, tenant: str) -> Request:
    ids = tuple(10 + (first + place) % 480 for place in range(length))
    return Request(name, tenant, ids, Sampling(seed=1, temperature=0.0), Limits(12, ignore_eos=True))


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "lfm2", "qwen3_next"])
def test_memory_stays_within_what_was_planned(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Three times as many long prompts as there are slots, of several keys; each is answered."""
    folder = folder_of(kind, tmp_path_factory.getbasetemp())
    config = Config(model=str(folder), context=768, slots=8, kv_memory=KV, cache_memory=CACHE)
    runner = load_mlx.load_runner(config, resolve(config.model), lambda step: None)
    num_slots = sum(lane.num_slots for lane in runner.lanes)
    num_tokens = sum(lane.num_slots * lane.slot_tokens for lane in runner.lanes)
    states = num_slots * state_bytes(runner._head.model)
    assert num_tokens * runner.info.kv_bytes_per_token + states <= KV and (states > 0) == (kind in RECURRENT)
    engine = StepEngine(runner, max_cache_bytes=runner.cache_bytes)
    gc.collect()
    before = mx.get_active_memory()
    for number in range(3 * num_slots):
        engine.add(ask(f"r{number}", 7 * number, 700 if number % 3 else 300, f"t{number % 3}"))
    with pytest.raises(ContextLengthExceeded):
        engine.add(ask("never", 0, 768, "t"))
    num_finished, most = 0, 0
    while engine.has_work:
        num_finished += sum(isinstance(output, Finished) for _, _, output in engine.step())
        engine.check()
        most = max(most, mx.get_active_memory() - before)
    # Rows that decode together are as long as the longest of them, if that takes no more than twice the room.
    assert num_finished == 3 * num_slots and most < (1 if runner.can_splice else 2) * KV + CACHE + PASSING
    engine.cache.clear()
    engine.scheduler.rest()
    runner.close()
    gc.collect()
    assert mx.get_active_memory() - before < 4096 and mx.get_cache_memory() < 65536


def test_a_context_that_cannot_be_held_stops_the_start(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where somebody asked for it; else it is as long as there is room."""
    folder: Path = folder_of("llama", tmp_path_factory.getbasetemp())
    config = Config(model=str(folder), context=4096, kv_memory=1 << 20)
    with pytest.raises(StartupError, match="a context of 4096 tokens needs 3 MiB of KV memory, 1 MiB are there"):
        load_mlx.load_runner(config, resolve(config.model), lambda step: None)


@pytest.mark.parametrize(("kv_memory", "has_all"), [(1 << 20, False), (1 << 24, True)])
def test_states_are_planned_for(kv_memory: int, has_all: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where memory is short there are fewer slots."""
    folder: Path = folder_of("qwen3_next", tmp_path_factory.getbasetemp())
    config = Config(model=str(folder), context=256, slots=16, kv_memory=kv_memory, cache_memory=0)
    runner = load_mlx.load_runner(config, resolve(config.model), lambda step: None)
    [lane] = runner.lanes
    slot_bytes = state_bytes(runner._head.model) + lane.slot_tokens * runner.info.kv_bytes_per_token
    assert lane.num_slots * slot_bytes <= kv_memory and (lane.num_slots == 16) == has_all
    runner.close()
