"""Every source, their order, and the one line that says what is wrong and where."""

import logging
import math
import warnings
from pathlib import Path

import psutil
import pytest
from pydantic import ValidationError

from proxy_inference_engine.config import (
    ApiKey,
    Config,
    available_cores,
    available_memory,
    is_loopback,
    load_config,
    require_keys,
)
from proxy_inference_engine.config.catalogue import catalogue, settings_list
from proxy_inference_engine.config.keys import join_keys, parse_key, read_key_file
from proxy_inference_engine.config.sizes import format_size, parse_size
from proxy_inference_engine.errors import StartupError

DOCS = Path(__file__).parents[3] / "docs" / "configuration.md"


def refused(folder: Path, flags: dict[str, object] | None = None, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(StartupError) as caught:
        load_config(flags or {}, environ or {}, folder)
    assert "\n" not in caught.value.message
    return caught.value.message


def test_defaults_without_any_source(tmp_path: Path) -> None:
    assert load_config({}, {}, tmp_path) == Config()
    assert Config().host == "127.0.0.1"
    assert Config().port == 8000


def test_stronger_sources_win(tmp_path: Path) -> None:
    (tmp_path / "pie.toml").write_text("port = 1\nslots = 1\nthreads = 1\ncontext = 1000")
    (tmp_path / ".env").write_text("PIE_PORT=2\nPIE_SLOTS=2\nPIE_THREADS=2\n")
    config = load_config({"port": "4"}, {"PIE_PORT": "3", "PIE_SLOTS": "3"}, tmp_path)
    assert (config.port, config.slots, config.threads, config.context) == (4, 3, 2, 1000)


def test_a_stronger_source_can_go_back_to_auto(tmp_path: Path) -> None:
    (tmp_path / "pie.toml").write_text("context = 1000\nkv_memory = '1GiB'\nformat = 'plain'")
    config = load_config({"context": "auto", "kv_memory": "auto", "format": "auto"}, {}, tmp_path)
    assert (config.context, config.kv_memory, config.format) == (None, None, None)


@pytest.mark.parametrize("where", ["flag", "environment", "dotenv"])
def test_the_toml_file_can_be_named(tmp_path: Path, where: str) -> None:
    (tmp_path / "pie.toml").write_text("port = 1")
    (tmp_path / "other.toml").write_text("port = 2")
    if where == "dotenv":
        (tmp_path / ".env").write_text("PIE_CONFIG=other.toml")
    flags: dict[str, object] = {"config": "other.toml"} if where == "flag" else {}
    environ = {"PIE_CONFIG": "other.toml"} if where == "environment" else {}
    assert load_config(flags, environ, tmp_path).port == 2


def test_empty_variables_are_not_set(tmp_path: Path) -> None:
    assert load_config({}, {"PIE_PORT": "", "PIE_MAX_WAITING_PER_KEY": " ", "PATH": "x"}, tmp_path) == Config()


def test_empty_key_variables_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, environ={"PIE_API_KEYS": ""}).startswith("PIE_API_KEYS: ")
    assert refused(tmp_path, environ={"PIE_API_KEY_FILE": ""}).startswith("PIE_API_KEY_FILE: ")


@pytest.mark.parametrize(
    ("value", "num_bytes"),
    [
        ("2GiB", 2 << 30),
        ("512MB", 512_000_000),
        ("1.5k", 1536),
        (" 7 b ", 7),
        (4096, 4096),
        ("0", 0),
        ("1 TiB", 1 << 40),
    ],
)
def test_sizes(value: object, num_bytes: int) -> None:
    assert parse_size(value) == num_bytes


@pytest.mark.parametrize("value", ["", "GiB", "-1", "nan", "inf", "2XB", "1e3", True, None, "9999999TiB", -5])
def test_sizes_refused(value: object) -> None:
    with pytest.raises(ValueError, match="should be"):
        parse_size(value)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (1536, "1.5 KiB"), (512 << 20, "512 MiB"), (3 << 29, "1.5 GiB"), (2 << 30, "2 GiB")],
)
def test_sizes_shown(num_bytes: int, text: str) -> None:
    assert format_size(num_bytes) == text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "65536"),
        ("port", "-1"),
        ("port", "http"),
        ("port", "80.5"),
        ("host", ""),
        ("slots", "0"),
        ("threads", "0"),
        ("context", "3"),
        ("gpu_layers", "-2"),
        ("step_target_ms", "nan"),
        ("step_target_ms", "0"),
        ("drain_seconds", "inf"),
        ("drain_seconds", "-1"),
        ("kv_memory", "0"),
        ("kv_memory", "much"),
        ("cache_memory", "-1"),
        ("format", "morse"),
        ("convert_weights", "always"),
        ("log_level", "loud"),
        ("exact", "perhaps"),
        ("model", ""),
    ],
)
def test_bad_values_name_the_flag(tmp_path: Path, name: str, value: str) -> None:
    message = refused(tmp_path, {name: value})
    assert message.startswith(f"--{name.replace('_', '-')}: ")
    assert repr(value) in message


@pytest.mark.parametrize("text", ["slots = true", "step_target_ms = nan", "host = 5", "api_keys = 5", "slots = [1]"])
def test_wrong_types_in_toml_name_the_key_and_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "pie.toml").write_text(text)
    assert refused(tmp_path).startswith(f"{text.split()[0]} in {str(tmp_path / 'pie.toml')!r}: ")


def test_bad_values_name_the_variable_and_its_place(tmp_path: Path) -> None:
    assert refused(tmp_path, environ={"PIE_PORT": "x"}).startswith("PIE_PORT: ")
    (tmp_path / ".env").write_text("PIE_PORT=x")
    assert refused(tmp_path).startswith("PIE_PORT in .env: ")


def test_unknown_names_are_refused_with_the_nearest(tmp_path: Path) -> None:
    assert refused(tmp_path, environ={"PIE_SLOT": "3"}) == "unknown variable PIE_SLOT; did you mean PIE_SLOTS?"
    (tmp_path / ".env").write_text("PIE_COLOUR=red")
    assert refused(tmp_path) == "unknown variable PIE_COLOUR in .env"
    (tmp_path / ".env").unlink()
    (tmp_path / "pie.toml").write_text("[listen]\nport = 1")
    assert "unknown key 'listen'" in refused(tmp_path)


def test_names_of_the_tests_are_allowed(tmp_path: Path) -> None:
    assert load_config({}, {"PIE_SCHEMA_SAMPLE": "5"}, tmp_path) == Config()


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path, {"config": "missing.toml"})
    (tmp_path / "pie.toml").write_text("port = x")
    assert "line 1" in refused(tmp_path)
    (tmp_path / "pie.toml").write_bytes(b"\xff")
    assert "pie.toml" in refused(tmp_path)
    (tmp_path / "pie.toml").unlink()
    (tmp_path / ".env").mkdir()
    assert ".env" in refused(tmp_path)


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("PIE_HOST=a", "a"),
        ("  export PIE_HOST = a  ", "a"),
        ("PIE_HOST=a # note", "a"),
        ("PIE_HOST=a#b", "a#b"),
        ("PIE_HOST='a # b' # note", "a # b"),
        ('PIE_HOST="$HOME"', "$HOME"),
        ("# PIE_HOST=a", "127.0.0.1"),
        ("PIE_HOST= # nothing", "127.0.0.1"),
        ("other program's line", "127.0.0.1"),
    ],
)
def test_dotenv_lines(tmp_path: Path, line: str, host: str) -> None:
    (tmp_path / ".env").write_text(f"X=1\n{line}\n")
    assert load_config({}, {}, tmp_path).host == host


def test_dotenv_line_without_a_value_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("\nPIE_HOST\n")
    assert refused(tmp_path).endswith("line 2: expected PIE_NAME=value")


def test_config_is_frozen_and_knows_its_fields() -> None:
    with pytest.raises(ValidationError):
        Config().port = 1  # type: ignore[misc]  # that it is refused is the point
    with pytest.raises(ValidationError):
        Config(colour="red")  # type: ignore[call-arg]  # that it is refused is the point
    with pytest.raises(ValidationError):
        Config(step_target_ms=math.nan)


def test_paths_expand_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert load_config({"cache_dir": "~/x"}, {}, tmp_path).cache_dir == tmp_path / "x"
    assert Config().cache_dir == tmp_path / ".cache" / "proxy-inference-engine"
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert Config().cache_dir == Path("/cache/proxy-inference-engine")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert Config().cache_dir == tmp_path / ".cache" / "proxy-inference-engine"


def test_keys_of_file_and_environment_count_together(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# ours\n\nalice:sk-1\n  bob:sk:2  \nalice:sk-3\n")
    path.chmod(0o600)
    config = load_config({"api_key_file": str(path)}, {"PIE_API_KEYS": "carol:sk-4, alice:sk-1"}, tmp_path)
    assert config.api_keys == (
        ApiKey("alice", "sk-1"),
        ApiKey("bob", "sk:2"),
        ApiKey("alice", "sk-3"),
        ApiKey("carol", "sk-4"),
    )
    assert "sk-" not in repr(config)


@pytest.mark.parametrize("text", ["secret", ":secret", "a b:secret", "alice:", "alice:se cret", "alice:schlüssel", ""])
def test_bad_keys_are_refused_without_being_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_key(text)
    assert "secret" not in str(caught.value)
    message = refused(tmp_path, environ={"PIE_API_KEYS": f"ok:fine,{text}"})
    assert message.startswith("PIE_API_KEYS: ")
    assert "secret" not in message


def test_bad_key_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    assert "No such file" in refused(tmp_path, {"api_key_file": str(path)})
    path.write_text("# nothing\n")
    assert "has no keys" in refused(tmp_path, {"api_key_file": str(path)})
    path.write_text("\nsecret\n")
    message = refused(tmp_path, {"api_key_file": str(path)})
    assert "line 2" in message
    assert "secret" not in message


def test_one_key_has_one_owner(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'a' and 'b' have the same key"):
        join_keys([ApiKey("a", "x"), ApiKey("b", "x")])
    path = tmp_path / "keys"
    path.write_text("a:x")
    assert "same key" in refused(tmp_path, {"api_key_file": str(path)}, {"PIE_API_KEYS": "b:x"})


@pytest.mark.parametrize(("mode", "num_warnings"), [(0o600, 0), (0o640, 0), (0o644, 1)])
def test_a_key_file_for_everyone_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, num_warnings: int
) -> None:
    path = tmp_path / "keys"
    path.write_text("alice:sk-1")
    path.chmod(mode)
    with caplog.at_level(logging.WARNING):
        read_key_file(path)
    assert len(caplog.records) == num_warnings


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("2130706433", False),
    ],
)
def test_only_loopback_goes_without_a_key(host: str, is_local: bool) -> None:
    assert is_loopback(host) == is_local
    require_keys(Config(host=host, api_keys=(ApiKey("alice", "sk-1"),)))
    if is_local:
        require_keys(Config(host=host))
    else:
        with pytest.raises(StartupError, match="--api-key-file"):
            require_keys(Config(host=host))


def test_cores_are_physical_and_within_the_quota(tmp_path: Path) -> None:
    assert available_cores(tmp_path, tmp_path) >= 1
    (tmp_path / "cpu.max").write_text("100000 100000")
    assert available_cores(tmp_path, tmp_path) == 1
    for cpu in range(1024):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text("0-1023")
    (tmp_path / "cpu.max").write_text("max 100000")
    assert available_cores(tmp_path, tmp_path) == 1


def test_cores_where_a_process_cannot_be_bound_to_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS."""
    monkeypatch.delattr(psutil.Process, "cpu_affinity")
    assert available_cores(tmp_path, tmp_path) == psutil.cpu_count(logical=False)


def test_memory_is_what_is_free_within_the_containers_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert available_memory(tmp_path) > 0
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 1000 kB\nMemFree: 500 kB\nInactive: 0 kB\n")
    (tmp_path / "vmstat").write_text("")
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))  # which it reads it from, on Linux
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this file has so little in it
        assert available_memory(tmp_path) == 1000 * 1024
        (tmp_path / "memory.max").write_text("max\n")
        (tmp_path / "memory.current").write_text("1000\n")
        assert available_memory(tmp_path) == 1000 * 1024
        (tmp_path / "memory.max").write_text("5000\n")
        assert available_memory(tmp_path) == 4000
        (tmp_path / "memory.current").write_text("6000\n")
        assert available_memory(tmp_path) == 0


def test_every_setting_is_described() -> None:
    for info in catalogue():
        assert info.description.endswith("."), info.name


def test_the_list_in_the_docs_is_current() -> None:
    text = DOCS.read_text()
    shown = text.partition("<!-- settings -->\n")[2].partition("\n<!-- /settings -->")[0]
    assert shown == settings_list(), "run: python -m proxy_inference_engine.config"


def test_the_metrics_key_is_a_secret_without_a_name(tmp_path: Path) -> None:
    config = load_config({}, {"PIE_METRICS_KEY": "sk-1"}, tmp_path)
    assert config.metrics_key == ApiKey("metrics", "sk-1") and "sk-1" not in repr(config)
    for wrong in ("", "se cret", "schlüssel"):
        message = refused(tmp_path, environ={"PIE_METRICS_KEY": wrong})
        assert message.startswith("PIE_METRICS_KEY: ") and (not wrong or wrong not in message)
