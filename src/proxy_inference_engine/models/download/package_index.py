"""Which package index pip or uv would ask: their variables, then their files, then the public one.

https://pip.pypa.io/en/stable/topics/configuration/ and https://docs.astral.sh/uv/concepts/configuration-files/. Of the
index alone; what else they know (keyrings, netrc, further indexes, folders with wheels), only they do.
"""

import configparser
import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from proxy_inference_engine.errors import StartupError

PUBLIC = "https://pypi.org/simple"
_VARIABLES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
_SECTIONS = ("install", "global")  # what pip says of one command counts more


def find_index() -> str:
    """Raises StartupError for a file that cannot be read, as pip and uv do."""
    for name in _VARIABLES:
        if value := os.environ.get(name, "").strip():
            return value
    return _of_pip() or _of_uv() or PUBLIC


def _of_pip() -> str | None:
    found: dict[str, str] = {}
    for path in _pip_files():
        found |= _read_pip(path)  # the later file counts more
    return next((found[section] for section in _SECTIONS if section in found), None)


def _pip_files() -> Iterator[Path]:
    """For all users, for one, for an environment, and the one that a variable names; `os.devnull` means none."""
    named = os.environ.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return
    for folder in reversed(os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep)):
        yield Path(folder, "pip", "pip.conf")
    yield Path("/Library/Application Support/pip/pip.conf")
    yield Path("/etc/pip.conf")
    if not (named and Path(named).exists()):
        yield Path.home() / ".pip" / "pip.conf"
        yield _own_folder() / "pip" / "pip.conf"
        yield Path.home() / "Library" / "Application Support" / "pip" / "pip.conf"
    yield Path(sys.prefix, "pip.conf")
    if named:
        yield Path(named)


def _own_folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def _read_pip(path: Path) -> dict[str, str]:
    """The index by section."""
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")  # a file that is not there says nothing
    except (OSError, configparser.Error, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None
    keys = ("index-url", "index_url")
    return {
        section: value.strip()
        for section in _SECTIONS
        for key in keys
        if (value := parser.get(section, key, fallback=""))
    }


def _of_uv() -> str | None:
    """Its file that is named, else that of the user, else that of all users."""
    named = os.environ.get("UV_CONFIG_FILE")
    for path in [Path(named)] if named else [_own_folder() / "uv" / "uv.toml", Path("/etc/uv/uv.toml")]:
        try:
            said = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from None
        if index := _default_of_uv(said):
            return index
    return None


def _default_of_uv(said: dict[str, object]) -> str | None:
    listed = said.get("index")
    for each in listed if isinstance(listed, list) else []:
        if isinstance(each, dict) and each.get("default") is True:
            return str(each.get("url", "")) or None
    old = said.get("index-url")
    return old if isinstance(old, str) else None


def _unreadable(path: Path, error: Exception) -> StartupError:
    reason = " ".join(str(error).split())
    return StartupError(f"{str(path)!r}, which says where packages come from, cannot be read: {reason}")
