"""`pie serve` over several real models: listed in TOML or found in a folder, loaded on demand, evicted, truncated."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.model.gguf_files import write_llama
from tests.polling import wait_until
from tests.terminal import environment

HELLO = [{"role": "user", "content": "Hello"}]
CYCLES = """
import asyncio, os, sys, threading
from proxy_inference_engine.config import Config
from proxy_inference_engine.models.watcher import Nobody
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.pool.loader import EngineLoader
from proxy_inference_engine.served.ask import Ask, LimitWishes, RawPrompt
from proxy_inference_engine.served.model import Threads
from proxy_inference_engine.server.app import image_loader

def staying():
    # Those of the event loop's pool are kept, and there may be one more or less of them.
    return [thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")]

def end_all():
    # What is on its way out, such as the one that faults memory in, may need a moment on a busy machine.
    for thread in staying():
        if thread.name not in ("MainThread", "passes"):
            thread.join(60)

async def main(path, cycles):
    entry = PoolEntry("m", Config(model=path, threads=1, context=256, slots=2, cache_memory=1 << 20))
    loader = EngineLoader(1 << 30, Threads(), image_loader)
    for cycle in range(cycles):
        model = await loader.load(entry, Nobody())
        ask = Ask(f"r{cycle}", "t", RawPrompt("Hello"), limits=LimitWishes(max_tokens=4))
        async for _ in (await model.answer(ask)).steps():
            pass
        await loader.unload(model)
        del model
        assert any(thread.name == "passes" for thread in threading.enumerate()), "one computes for all"
        if cycle in (cycles // 3, cycles - 1):
            pages = int(open("/proc/self/statm").read().split()[1])
            await asyncio.to_thread(end_all)
            print(pages * 4096, len(staying()), len(os.listdir("/proc/self/fd")), flush=True)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def beside(home: Path) -> dict[str, str]:
    """The source beside these tests, and no settings of whoever runs them."""
    return {**environment(home), "PYTHONPATH": str(Path(__file__).parents[2] / "src")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sound models of different weights, and one whose file ends too early."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("one", "two")):
        write_llama(folder / f"{name}.gguf", facts={"general.sampling.temp": 0.0}, seed=seed)
    whole = (folder / "one.gguf").read_bytes()
    (folder / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    return folder


@contextmanager
def serving(home: Path, toml: str) -> Iterator[tuple[httpx.Client, str]]:
    (home / "pie.toml").write_text(f'port = 0\nthreads = 1\ncontext = 256\nslots = 2\nlog_level = "error"\n{toml}')
    line = [sys.executable, "-m", "proxy_inference_engine", "serve"]
    process = subprocess.Popen(
        line, cwd=home, env=beside(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )
    assert process.stdout is not None
    (home / "pid").write_text(str(process.pid))
    try:
        printed = ""
        while "Ctrl-C" not in printed:
            read = process.stdout.readline()
            assert read, process.stderr and process.stderr.read()
            printed += read
        address = next(word for word in printed.split() if word.startswith("http://")).removesuffix("/v1")
        with httpx.Client(base_url=address, timeout=60) as http:
            yield http, printed
    finally:
        process.kill()
        process.communicate()


def said(http: httpx.Client, model: str) -> httpx.Response:
    body: dict[str, Any] = {"model": model, "messages": HELLO, "max_tokens": 12, "ignore_eos": True}
    return http.post("/v1/chat/completions", json=body)


def text(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return json.dumps(answer.json()["choices"][0]["message"]["content"])


def test_a_folder_is_served_by_name(folder: Path, tmp_path: Path) -> None:
    with serving(tmp_path, f'model_folders = ["{folder}"]\nmemory = "2GiB"\ncache_memory = "1MiB"\n') as (
        http,
        printed,
    ):
        assert all(name in printed for name in ("one", "two", "cut")) and str(folder) not in printed
        assert [model["id"] for model in http.get("/v1/models").json()["data"]] == ["cut", "one", "two"]
        with ThreadPoolExecutor(2) as threads:
            answers = dict(zip(("one", "two"), threads.map(lambda name: said(http, name), ("one", "two")), strict=True))
        assert text(answers["one"]) != text(answers["two"])
        refused = said(http, "cut")
        assert refused.status_code == 503 and refused.json()["error"]["code"] == "model_load_failed"
        assert "cut" in refused.text and str(folder) not in refused.text
        assert text(said(http, "one")) == text(answers["one"]), "the others go on"
        assert said(http, str(folder / "one.gguf")).status_code == 404, "a name never becomes a path"


def test_models_in_the_file_have_their_own_settings_and_make_room(folder: Path, tmp_path: Path) -> None:
    """Both do not fit: 200 MiB are half of what two caches and their buffers take."""
    toml = f"""
    memory = "250MiB"
    cache_memory = "60MiB"
    [models.one]
    model = "{folder / "one.gguf"}"
    aliases = ["gpt-4o"]
    context = 128
    [models.two]
    model = "{folder / "two.gguf"}"
    preload = true
    """
    with serving(tmp_path, toml) as (http, printed):
        assert "Being loaded now within 250 MiB\n  two\nLoaded when asked for\n  one\n" in printed
        first = text(said(http, "gpt-4o"))
        assert http.get("/v1/models/one").json()["context_length"] == 256  # llama.cpp pads it
        assert text(said(http, "two")) != first
        assert [model["state"] for model in http.get("/admin/models").json()["data"]] == ["unloaded", "ready"]
        assert text(said(http, "one")) == first
        assert http.get("/admin/models").json()["memory_bytes"] <= 250 << 20


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("[models.one]\ncontex = 5", "unknown key 'contex'; did you mean context?"),
        ("[models.one]\ncontext = 5", "context should be greater than or equal to 16"),
        ("[models.one]\nport = 5", "unknown key 'port'"),
        ('[models."a*"]\ncontext = 50', "'a*' is no name for a model"),
        ('model_folders = ["/nowhere"]', "'/nowhere': No such file or directory"),
    ],
)
def test_what_is_wrong_in_the_file_is_one_line(tmp_path: Path, toml: str, said: str) -> None:
    (tmp_path / "pie.toml").write_text(f"port = 0\n{toml}")
    line = [sys.executable, "-m", "proxy_inference_engine", "serve"]
    ended = subprocess.run(line, cwd=tmp_path, env=beside(tmp_path), capture_output=True, encoding="utf-8", timeout=60)
    assert ended.returncode == 1 and said in ended.stderr and len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("cycles", [24, pytest.param(200, marks=pytest.mark.soak)])
def test_loading_and_unloading_leaves_nothing_behind(folder: Path, tmp_path: Path, cycles: int) -> None:
    line = [sys.executable, "-c", CYCLES, str(folder / "one.gguf"), str(cycles)]
    ended = subprocess.run(line, env=beside(tmp_path), capture_output=True, encoding="utf-8", timeout=600)
    assert ended.returncode == 0, ended.stderr
    (early, *counts), (late, *same) = (list(map(int, row.split())) for row in ended.stdout.splitlines())
    assert counts == same, "threads or descriptors"
    assert late - early < 8 << 20, "memory"


@pytest.mark.parametrize("way", ["signal", "route"])
def test_models_are_added_and_removed_while_it_runs(folder: Path, tmp_path: Path, way: str) -> None:
    tables = {name: f'[models.{name}]\nmodel = "{folder / name}.gguf"\n' for name in ("one", "two")}
    with serving(tmp_path, f'memory = "2GiB"\ncache_memory = "1MiB"\n{tables["one"]}') as (http, _):
        before = text(said(http, "one"))
        head = (tmp_path / "pie.toml").read_text().partition("[models")[0]

        def reload(toml: str) -> httpx.Response | None:
            (tmp_path / "pie.toml").write_text(toml)
            if way == "route":
                return http.post("/admin/reload")
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGHUP)
            return None

        def names() -> list[str]:
            return [model["id"] for model in http.get("/v1/models").json()["data"]]

        answer = reload(f"{head}{tables['one']}{tables['two']}aliases = ['gpt-4o']\n")
        wait_until(lambda: names() == ["one", "two", "gpt-4o"])
        assert answer is None or (answer.json()["added"], answer.json()["needs_restart"]) == (["two"], [])
        assert text(said(http, "one")) == before and text(said(http, "gpt-4o")) != before
        assert [model["state"] for model in http.get("/admin/models").json()["data"]] == ["ready", "ready"]
        answer = reload(f"{head}[models.one]\nnonsense = 1\n")
        assert answer is None or answer.json()["error"]["code"] == "invalid_config"
        assert names() == ["one", "two", "gpt-4o"], "what cannot be used changes nothing"
        for port, unapplied in ((1, ["port"]), (1, ["port"]), (0, [])):
            answer = reload(f"{head.replace('port = 0', f'port = {port}')}{tables['two']}")
            wait_until(lambda: names() == ["two"])
            assert answer is None or answer.json()["needs_restart"] == unapplied, "beside what the server began with"
        assert said(http, "one").status_code == 404 and text(said(http, "two")) != before


def test_one_model_becomes_several(folder: Path, tmp_path: Path) -> None:
    """What was loaded alone, without a budget, counts in it from then on."""
    with serving(tmp_path, f'model = "{folder / "one.gguf"}"\nmemory = "2GiB"\ncache_memory = "1MiB"\n') as (http, _):
        before = text(said(http, "one"))
        assert http.get("/admin/models").json()["max_memory_bytes"] is None
        with (tmp_path / "pie.toml").open("a") as file:
            file.write(f'[models.two]\nmodel = "{folder / "two.gguf"}"\n')
        assert http.post("/admin/reload").json()["added"] == ["two"]
        assert text(said(http, "two")) != before and text(said(http, "one")) == before
        status = http.get("/admin/models").json()
        assert status["max_memory_bytes"] == 2 << 30 and all(model["memory_bytes"] for model in status["data"])
