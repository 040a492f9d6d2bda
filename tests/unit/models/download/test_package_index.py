"""Which package index is asked, and that pip asks the same one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download.package_index import PUBLIC, find_index
from tests.hub import Hub

USER, LEGACY, NAMED = "config/pip/pip.conf", "home/.pip/pip.conf", "named.conf"
UV = "config/uv/uv.toml"


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set on this machine for all users stays out by a folder of its own; for /etc there is none."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "all"))


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def says(index: str, section: str = "global") -> str:
    return f"[{section}]\nindex-url = {{hub}}/{index}\n"


@pytest.mark.parametrize(
    ("files", "variables", "expected"),
    [
        ({USER: says("one")}, {}, "one"),
        ({"all/pip/pip.conf": says("all"), LEGACY: says("old")}, {}, "old"),
        ({LEGACY: says("old"), USER: says("one")}, {}, "one"),
        ({USER: says("one") + says("two", "install")}, {}, "two"),
        ({USER: says("two", "install"), NAMED: says("named")}, {"PIP_CONFIG_FILE": "{folder}/named.conf"}, "named"),
        ({USER: "[global]\nindex_url: {hub}/one\n"}, {}, "one"),
        ({USER: says("one"), NAMED: "[global]\ntimeout = 9\n"}, {"PIP_CONFIG_FILE": "{folder}/named.conf"}, None),
        ({USER: says("one")}, {"PIP_CONFIG_FILE": "{folder}/missing.conf"}, "one"),
        ({USER: says("one")}, {"PIP_CONFIG_FILE": os.devnull}, None),
        ({USER: says("one")}, {"PIP_INDEX_URL": "{hub}/said"}, "said"),
    ],
)
def test_it_is_the_one_that_pip_asks(
    hub: Hub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    variables: dict[str, str],
    expected: str | None,
) -> None:
    pytest.importorskip("pip", reason="there is no pip to compare with")
    if has_settings_for_all():
        pytest.skip("this machine has an index for all users")
    write(tmp_path, {name: text.format(hub=hub.endpoint) for name, text in files.items()})
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(hub=hub.endpoint, folder=tmp_path))
    if expected is None:
        assert find_index() == PUBLIC
        return
    assert find_index() == f"{hub.endpoint}/{expected}"
    # A package that is nowhere: what pip asks for it is enough.
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--retries", "0"]
    done = subprocess.run([*pip, "--disable-pip-version-check", "nothing"], capture_output=True, text=True)
    assert {each.path for each in hub.asked} == {f"/{expected}/nothing/"}, done.stderr


def has_settings_for_all() -> bool:
    files = (Path("/etc/pip.conf"), Path("/Library/Application Support/pip/pip.conf"), Path(sys.prefix, "pip.conf"))
    return any(path.exists() and re.search("^index.url", path.read_text(), re.MULTILINE) for path in files)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('index-url = "https://a/simple"', "https://a/simple"),
        ('[[index]]\nurl = "https://b"\n[[index]]\nurl = "https://c"\ndefault = true', "https://c"),
        ('[[index]]\nurl = "https://b/simple"', PUBLIC),
        ("index = 3\nindex-url = 4", PUBLIC),
    ],
)
def test_that_of_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    write(tmp_path, {UV: text})
    assert find_index() == expected
    monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "missing.toml"))
    assert find_index() == PUBLIC


@pytest.mark.parametrize("name", [USER, UV])
def test_a_file_that_is_none_is_named(tmp_path: Path, name: str) -> None:
    write(tmp_path, {name: "= ="})
    with pytest.raises(StartupError, match=rf"{name}', which says where packages come from, cannot be read"):
        find_index()
