"""`pie serve` looks at what it keeps before it loads a model and says that it serves."""

from pathlib import Path

import pytest

from proxy_inference_engine.cli.serve import serve
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError


def test_a_bad_sealing_key_is_told_before_the_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was noticed after the banner had said that all is well."""
    (tmp_path / "sealing.key").write_bytes(b"short")
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(100))  # no model: an error of its own
    with pytest.raises(StartupError, match=r"sealing\.key"):
        serve(Config(model=str(tmp_path / "model.gguf"), data_dir=tmp_path, port=0))
    assert capsys.readouterr().out == ""
