"""`pie key NAME`: what it prints can be used as it is."""

from pathlib import Path

import pytest

from proxy_inference_engine.cli import main
from proxy_inference_engine.config.keys import read_key_file


@pytest.mark.parametrize("flags", [[], ["--admin"]])
def test_the_line_lets_the_key_in(tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]) -> None:
    assert main(["key", "anna", *flags]) == 0
    (_, key), (_, line) = (each.split(maxsplit=1) for each in capsys.readouterr().out.splitlines())
    path = tmp_path / "keys"
    path.write_text(line)
    path.chmod(0o600)
    [kept] = read_key_file(path)
    assert kept.name == "anna" and kept.is_admin == bool(flags)
    assert key not in line
    path.write_text(f"anna:{key}" + (" admin" if flags else ""))
    assert [each.digest for each in read_key_file(path)] == [kept.digest]


def test_no_setting_is_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that the settings name is made with what this prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIE_API_KEY_FILE", str(tmp_path / "keys"))
    assert main(["key", "anna"]) == 0


def test_a_name_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", "a b"]) == 1
    assert capsys.readouterr().err.startswith("pie: a key's name")
    with pytest.raises(SystemExit):
        main(["key"])
