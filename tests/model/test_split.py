"""A model in several files, made here, through the same way as any other: resolved, loaded, generating."""

import asyncio
import shutil
from pathlib import Path

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.load import load_engine
from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.types import Token
from tests.model.gguf_files import write_llama, write_split_llama
from tests.polling import HANG_S
from tests.requests import make_request


def generated(model: Path, folder: Path) -> list[int]:
    """The first tokens that a model says, with the whole program below the server."""
    config = Config(model=str(model), threads=1, slots=2, kv_memory=8 << 20, cache_memory=1 << 20, cache_dir=folder)
    worker = load_engine(config)

    async def ask() -> list[int]:
        async with asyncio.timeout(HANG_S):
            stream = worker.submit(make_request(b"\x20\x21\x22", max_tokens=5))
            return [item.output.id async for items in stream for item in items if isinstance(item.output, Token)]

    try:
        return asyncio.run(ask())
    finally:
        worker.stop()


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_split_llama(tmp_path_factory.mktemp("split"))


def test_any_part_loads_the_whole(parts: list[Path], tmp_path: Path) -> None:
    assert len(parts) == 3
    whole = generated(write_llama(tmp_path / "whole.gguf"), tmp_path)
    assert len(whole) == 5
    for part in parts:
        file = resolve(str(part))
        assert (file.path, file.name) == (parts[0], "split")
        assert generated(part, tmp_path) == whole


def test_a_part_that_is_missing_or_damaged_is_named(parts: list[Path], tmp_path: Path) -> None:
    for part in parts:
        shutil.copy(part, tmp_path)
    second = tmp_path / parts[1].name
    second.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(StartupError, match="cannot load"):
        generated(tmp_path / parts[0].name, tmp_path)
    second.unlink()
    with pytest.raises(StartupError, match=r"00002-of-00003.*no such file"):
        generated(tmp_path / parts[0].name, tmp_path)
