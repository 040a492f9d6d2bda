"""Installed like any Python program: an sdist, the wheel from it, an environment without a compiler, a streamed chat.

Needs the package registry for what the wheel depends on; skipped where it cannot be reached.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import httpx
import pytest

from proxy_inference_engine.models.resolve import BUNDLED_FILE, resolve

PROGRAM = """
import asyncio
from typing import Literal, assert_type

from pydantic import BaseModel

from proxy_inference_engine import AsyncEngine, ChatAnswer, Engine, IncompleteAnswer


class City(BaseModel):
    name: str


def weather(city: Literal["Paris", "Rome"], days: int = 1) -> dict[str, int]:
    return {"degrees": 20 + days}


async def tide(place: str) -> str:
    return f"low in {place}"


with Engine("bundled", context=4096) as engine:
    assert_type(engine.chat("A capital.", response_format=City), ChatAnswer[City])
    assert_type(engine.chat("Some primes.", response_format=list[int]).parsed, list[int])
    answer = engine.chat([{"role": "user", "content": "Rome?"}], tools=[weather, tide], tool_choice="required")
    assert_type(answer.text, str)
    assert_type(answer.counts.num_tokens, int)
    further = engine.chat([*answer.messages, {"role": "user", "content": "And Paris?"}])
    stream = engine.stream("A lake.", temperature=0, response_format=City)
    for piece in stream:
        assert_type(piece, str)
    try:
        assert_type(stream.answer.parsed, City)
    except IncompleteAnswer as error:
        assert_type(error.answer.text, str)
    assert_type(engine.embed("a cat"), list[float])
    assert_type(engine.embed(["a cat", "a dog"], dimensions=64), list[list[float]])
    engine.chat("A river.", temprature=0)  # type: ignore[call-overload]  # which strict wants to be needed


async def main() -> None:
    async with AsyncEngine("bundled") as engine:
        assert_type((await engine.chat("A capital.", response_format=City)).parsed, City)
        async for piece in engine.stream("A lake.", max_tokens=20):
            assert_type(piece, str)
        assert_type(await engine.embed("a cat"), list[float])


asyncio.run(main())
"""
ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
REACHED = "truststore"  # small, and among what is installed anyway


def environment(home: Path) -> dict[str, str]:
    """No compiler, no Python packages of ours, no settings."""
    return {"PATH": "/nowhere", "HOME": str(home)}


def pip_environment() -> dict[str, str]:
    """The same with pip's own settings and its cache: most runs download nothing."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "XDG_CACHE"))}
    return {**environment(Path.home()), **kept}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`python -m build` over a copy of the tree: it leaves files of its own beside the source."""
    pytest.importorskip("build", reason="build is not installed: make install-dev")
    folder = tmp_path_factory.mktemp("build")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(SOURCE, folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


def test_wheel_and_sdist_have_every_file_of_the_package(dist: Path) -> None:
    ours = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*") if path.is_file()}
    ours = {path for path in ours if "__pycache__" not in path and ".egg-info" not in path}
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == ours
    with tarfile.open(sdist) as tree:
        names = {name.partition("/")[2] for name in tree.getnames()}
    assert {f"src/{path}" for path in ours} | {"pyproject.toml", "README.md", "LICENSE"} <= names


@pytest.fixture(scope="module")
def pie(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in an environment that has nothing but the wheel and what it names, none of it compiled."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile"]
    pins = ["--only-binary", ":all:", "--constraint", str(ROOT / "requirements.txt")]
    probe = subprocess.run([*pip, *pins, "--no-deps", REACHED], env=pip_environment(), capture_output=True, text=True)
    if probe.returncode != 0:
        pytest.skip("the package registry cannot be reached")
    (wheel,) = dist.glob("*.whl")
    done = subprocess.run([*pip, *pins, str(wheel)], env=pip_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "venv" / "bin" / "pie"


def test_a_type_checker_knows_what_comes_out(pie: Path, tmp_path: Path) -> None:
    """Of the package as it is installed, under the strictest settings."""
    (tmp_path / "program.py").write_text(PROGRAM)
    mypy = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        os.devnull,
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    command = [*mypy, "--python-executable", str(pie.with_name("python")), "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_a_model_it_says_how_to_get_one(pie: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [pie, "serve", "--port", "0"], env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "serve --model bundled" in done.stderr and "Traceback" not in done.stderr


def test_it_serves_and_streams(pie: Path, tmp_path: Path) -> None:
    cached = (
        tmp_path / ".cache" / "proxy-inference-engine" / "bundled" / BUNDLED_FILE
    )  # as `pie pull bundled` leaves it
    cached.parent.mkdir(parents=True)
    cached.symlink_to(resolve(None).path)
    command = [str(pie), "serve", "--port", "0", "--slots", "2", "--context", "512"]
    server = subprocess.Popen(
        command, env=environment(tmp_path), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert server.stdout is not None and server.stderr is not None
    try:
        printed = ""
        while "Ctrl-C" not in printed:
            read = server.stdout.readline()
            assert read, server.stderr.read()
            printed += read
        assert "good for trying out" in printed
        url = printed.partition("Ready: ")[2].split()[0]
        question = {"model": "default", "messages": [{"role": "user", "content": "Say hello."}], "stream": True}
        with httpx.stream("POST", f"{url}/chat/completions", json={**question, "max_tokens": 8}, timeout=600) as answer:
            frames = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
        assert frames[-1] == "[DONE]"
        assert any(choice["delta"].get("content") for frame in frames[:-1] for choice in json.loads(frame)["choices"])
    finally:
        server.terminate()
        server.communicate(timeout=600)
