"""Keys that are read again: what is wrong with the file never opens or closes the server."""

import os
from pathlib import Path

import pytest

from proxy_inference_engine.config import ApiKey
from proxy_inference_engine.config.keys import all_keys
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.server.http.keyring import Keyring, KeySource


class Kept:
    """A key file, and the keyring over it."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.write(text)
        keys = all_keys(path, [ApiKey("carol", "sk-3")])
        self.keyring = Keyring(keys)
        self.source = KeySource(self.keyring, path, keys)

    def write(self, text: str) -> None:
        before = self.path.stat().st_mtime_ns if self.path.exists() else 0
        self.path.write_text(text)
        self.path.chmod(0o600)
        # A clock with wide steps would not tell two writes apart.
        os.utime(self.path, ns=(before + 10**9, before + 10**9))

    def names(self) -> set[str]:
        found = (self.keyring.find(f"sk-{number}".encode()) for number in range(9))
        return {key.name for key in found if key is not None}


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "keys", "anna:sk-1\nben:sk-2\n")


def test_a_changed_file_is_noticed(kept: Kept) -> None:
    assert kept.names() == {"anna", "ben", "carol"}
    kept.source.look()
    kept.write("ben:sk-2 admin\ndora:sk-4")
    assert kept.names() == {"anna", "ben", "carol"}, "not before somebody looks"
    kept.source.look()
    assert kept.names() == {"ben", "carol", "dora"}
    found = kept.keyring.find(b"sk-2")
    assert found is not None and found.is_admin


@pytest.mark.parametrize("text", ["", "# nothing\n", "nonsense", "anna:sk-1\nben:sk-1", "anna:sk-1\ncarol:sk-3 admin"])
def test_what_cannot_be_used_changes_nothing(kept: Kept, text: str, caplog: pytest.LogCaptureFixture) -> None:
    kept.write(text)
    kept.source.look()
    kept.source.look()
    assert kept.names() == {"anna", "ben", "carol"} and not kept.keyring.is_open
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1 and "stay as they were" in warnings[0].getMessage()
    with pytest.raises(StartupError):
        kept.source.reload()
    kept.write("ben:sk-2")
    kept.source.look()
    assert kept.names() == {"ben", "carol"}


def test_a_file_that_is_gone_changes_nothing(kept: Kept) -> None:
    kept.path.unlink()
    kept.source.look()
    assert kept.names() == {"anna", "ben", "carol"}


def test_a_file_that_is_replaced_is_noticed(kept: Kept) -> None:
    """As tools do that write another file and rename it, or turn a link: same size, and the time may be the same."""
    other = kept.path.with_name("other")
    other.write_text("anna:sk-1\ndan:sk-2\n")
    other.chmod(0o600)
    stat = kept.path.stat()
    os.utime(other, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    other.replace(kept.path)
    kept.source.look()
    assert kept.names() == {"anna", "dan", "carol"}


def test_who_was_let_in_may_stay_while_the_key_is_the_same() -> None:
    anna, root = ApiKey("anna", "sk-1"), ApiKey("root", "sk-2", is_admin=True)
    keyring = Keyring([anna, root])
    assert keyring.still_has(anna) and keyring.still_has(root) and not keyring.still_has(None)
    keyring.replace([ApiKey("anna", f"sha256:{anna.digest.hex()}"), ApiKey("root", "sk-2")])
    assert keyring.still_has(anna), "only written otherwise"
    assert not keyring.still_has(root), "an admin no more"
    keyring.replace([ApiKey("anna", "sk-3"), ApiKey("ben", "sk-2", is_admin=True)])
    assert not keyring.still_has(anna) and not keyring.still_has(root)
    assert Keyring(()).still_has(None)


def test_a_server_with_keys_never_opens() -> None:
    keyring = Keyring([ApiKey("anna", "sk-1")])
    keyring.replace(())
    assert not keyring.is_open and keyring.find(b"sk-1") is None
