"""Keys of two kinds, as they are or as digests, in a file or not."""

import hashlib
from pathlib import Path

import pytest

from proxy_inference_engine.config import ApiKey, load_config
from proxy_inference_engine.config.keys import join_keys, new_key, parse_key, read_key_file
from proxy_inference_engine.errors import StartupError

HEX = hashlib.sha256(b"sk-1").hexdigest()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("anna:sk-1", ApiKey("anna", "sk-1")),
        ("anna:sk-1 admin", ApiKey("anna", "sk-1", is_admin=True)),
        ("  anna:sk-1\tadmin ", ApiKey("anna", "sk-1", is_admin=True)),
        ("anna:admin", ApiKey("anna", "admin")),
        ("admin:sk-1", ApiKey("admin", "sk-1")),
        (f"anna:sha256:{HEX}", ApiKey("anna", f"sha256:{HEX}")),
        (f"anna:sha256:{HEX.upper()} admin", ApiKey("anna", f"sha256:{HEX.upper()}", is_admin=True)),
    ],
)
def test_lines(text: str, key: ApiKey) -> None:
    assert parse_key(text) == key


@pytest.mark.parametrize(
    "text",
    ["anna:sk-1 root", "anna:sk-1 admin admin", "anna: sk-1", "anna: admin", "anna:sha256:", "anna:sha256:secret",
     f"anna:sha256:{HEX}0", f"anna:sha256:{HEX[:-1]}", "anna:sk-1,admin admin x"],
)  # fmt: skip
def test_what_is_no_line(text: str) -> None:
    with pytest.raises(ValueError, match="anna") as caught:
        parse_key(text)
    assert "sk-1" not in str(caught.value) and "secret" not in str(caught.value)


def test_a_key_and_its_digest_are_one_key() -> None:
    plain, hashed = ApiKey("anna", "sk-1"), ApiKey("anna", f"sha256:{HEX}")
    assert plain.digest == hashed.digest == hashlib.sha256(b"sk-1").digest()
    assert join_keys([plain, hashed]) == (plain,)
    with pytest.raises(ValueError, match="'anna' and 'ben' have the same key"):
        join_keys([plain, ApiKey("ben", f"sha256:{HEX}")])
    with pytest.raises(ValueError, match="only once as an admin's"):
        join_keys([plain, ApiKey("anna", "sk-1", is_admin=True)])


def test_a_new_key_is_told_once_and_kept_as_its_digest() -> None:
    for is_admin in (False, True):
        made = new_key("anna", is_admin=is_admin)
        kept = parse_key(made.line)
        assert kept.digest == made.digest and kept.is_admin == is_admin and kept.name == "anna"
        assert made.key not in made.line and made.key not in repr(made) and len(made.key) > 40
    assert new_key("anna").key != new_key("anna").key
    with pytest.raises(ValueError, match="name"):
        new_key("a b")


@pytest.mark.parametrize(("text", "num_warnings"), [(f"anna:sha256:{HEX}", 0), (f"anna:sha256:{HEX}\nben:sk-2", 1)])
def test_digests_may_be_read_by_everybody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, num_warnings: int
) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(0o644)
    read_key_file(path)
    assert len(caplog.records) == num_warnings


def test_the_environment_has_both_kinds(tmp_path: Path) -> None:
    config = load_config({}, {"PIE_API_KEYS": "anna:sk-1, root:sk-2 admin"}, tmp_path)
    assert config.api_keys == (ApiKey("anna", "sk-1"), ApiKey("root", "sk-2", is_admin=True))


def test_what_is_not_only_in_the_file_outlives_it(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("anna:sk-1\nben:sk-2\n")
    path.chmod(0o600)
    config = load_config({"api_key_file": str(path)}, {"PIE_API_KEYS": "carol:sk-3, anna:sk-1"}, tmp_path)
    assert {key.name for key in config.api_keys if not key.is_from_file} == {"anna", "carol"}
    assert [key.is_from_file for key in read_key_file(path)] == [True, True]
    with pytest.raises(StartupError, match="No such file"):
        read_key_file(tmp_path / "none")
