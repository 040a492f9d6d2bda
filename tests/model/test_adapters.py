"""LoRA adapters on llama.cpp: each request has its own, alone or beside others, and no KV of another's."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.load import load_engine
from tests.model.gguf_files import write_adapter, write_llama
from tests.requests import make_request
from tests.unit.engine.threads import everything, token_ids

PROMPT = range(10, 90)
NAMES = (None, "poet", "lawyer")


def config(folder: Path, **adapters: Path) -> Config:
    return Config(
        model=str(folder / "m.gguf"),
        adapters=adapters,
        threads=1,
        cache_dir=folder,
        kv_memory=1 << 22,
        cache_memory=1 << 22,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    write_llama(folder / "m.gguf")
    for seed, name in enumerate(("poet", "lawyer")):
        write_adapter(folder / f"{name}.gguf", seed=seed)
    return folder


@pytest.fixture(scope="module")
def worker(folder: Path) -> Iterator[Worker]:
    worker = load_engine(config(folder, poet=folder / "poet.gguf", lawyer=folder / "lawyer.gguf"))
    yield worker
    worker.stop()


async def ask(worker: Worker, adapter: str | None, id_: str, tenant: str = "t") -> list[int]:
    request = make_request(PROMPT, id=id_, tenant=tenant, max_tokens=24, adapter=adapter)
    return token_ids(await everything(worker.submit(request)))


async def test_each_says_something_else_and_the_same_beside_others(worker: Worker) -> None:
    alone = [await ask(worker, name, f"alone {name}", tenant=f"alone {name}") for name in NAMES]
    assert len(set(map(tuple, alone))) == len(NAMES)
    for number in range(3):
        together = await asyncio.gather(
            *(ask(worker, name, f"{number} {name} {copy}", f"{number}") for copy in range(2) for name in NAMES)
        )
        assert together == alone * 2


async def test_a_prefix_is_known_with_the_same_adapter_only(worker: Worker) -> None:
    async def num_cached(adapter: str | None, id_: str) -> int:
        before = worker.stats().total_prompt_tokens_cached
        await ask(worker, adapter, id_, tenant="cache")
        return worker.stats().total_prompt_tokens_cached - before

    for name in NAMES:
        assert await num_cached(name, f"first {name}") == 0
    for name in NAMES:
        assert await num_cached(name, f"second {name}") == len(PROMPT) - 1


@pytest.mark.parametrize("name", ["m.gguf", "missing.gguf", "text.gguf", "half.gguf"])
def test_what_is_no_adapter_of_the_model_is_one_line(folder: Path, name: str) -> None:
    (folder / "text.gguf").write_text("no adapter")
    whole = (folder / "poet.gguf").read_bytes()
    (folder / "half.gguf").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StartupError, match="adapter 'bad'"):
        load_engine(config(folder, bad=folder / name))


def test_the_fingerprint_knows_what_an_adapter_says(folder: Path, tmp_path: Path) -> None:
    """By it a prefix on disk is told apart, which is an adapter's by its name alone."""
    write_adapter(tmp_path / "poet.gguf", seed=7)

    def fingerprint(**adapters: Path) -> str:
        worker = load_engine(config(folder, **adapters))
        worker.stop()
        return worker.info.fingerprint

    own, other = folder / "poet.gguf", tmp_path / "poet.gguf"
    assert fingerprint(poet=own) == fingerprint(poet=own)
    assert len({fingerprint(), fingerprint(poet=own), fingerprint(poet=other), fingerprint(bard=own)}) == 4
