"""Who may call, as people write it."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from proxy_inference_engine.config import ApiKey, Config, check_origins, load_config
from proxy_inference_engine.config.callers import AllowedOrigin
from proxy_inference_engine.errors import StartupError


def load(tmp_path: Path, **variables: str) -> Config:
    return load_config({}, {f"PIE_{name.upper()}": value for name, value in variables.items()}, tmp_path)


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        ("", ()),
        ("https://App.Example.com/", (AllowedOrigin("https", "app.example.com"),)),
        ("http://localhost:*, app://x", (AllowedOrigin("http", "localhost", "*"), AllowedOrigin("app", "x"))),
        ("https://a.b:443,http://a.b:443", (AllowedOrigin("https", "a.b"), AllowedOrigin("http", "a.b", "443"))),
        ("http://[::1]:3000", (AllowedOrigin("http", "[::1]", "3000"),)),
        ("vscode-webview://*", (AllowedOrigin("vscode-webview", "*"),)),
        ("*", (AllowedOrigin("*", "*"),)),
        ("null", (AllowedOrigin("null", "*"),)),
    ],
)
def test_origins(tmp_path: Path, text: str, origins: tuple[AllowedOrigin, ...]) -> None:
    assert load(tmp_path, allowed_origins=text).allowed_origins == origins


@pytest.mark.parametrize(
    "text",
    ["app.example.com", "https://", "https://*", "http://*:3000", "https://*.example.com", "https://a/b", "https://a:b",
     "http://a b", "https://u@a", "://a", "http://é"],
)  # fmt: skip
def test_what_is_no_origin_ends_the_start(tmp_path: Path, text: str) -> None:
    with pytest.raises(StartupError, match="PIE_ALLOWED_ORIGINS"):
        load(tmp_path, allowed_origins=text)


@pytest.mark.parametrize("text", ["*", "null"])
def test_every_page_may_call_only_with_keys(text: str) -> None:
    check_origins(Config(allowed_origins=text, api_keys=(ApiKey("a", "k"),)))  # type: ignore[arg-type]  # parsed
    with pytest.raises(StartupError, match="needs API keys"):
        check_origins(Config(allowed_origins=text))  # type: ignore[arg-type]  # parsed


def test_hosts(tmp_path: Path) -> None:
    (tmp_path / "pie.toml").write_text('allowed_hosts = ["Pie", "box.ts.net", "[fd7a::1]", "100.64.0.7"]')
    assert load(tmp_path).allowed_hosts == ("pie", "box.ts.net", "fd7a::1", "100.64.0.7")
    assert load(tmp_path, allowed_hosts="a, b").allowed_hosts == ("a", "b")
    for wrong in ("a:80", "*", "http://a", "a/b", "*.a.com"):
        with pytest.raises(StartupError, match="is no host"):
            load(tmp_path, allowed_hosts=wrong)


def test_mcp_servers(tmp_path: Path) -> None:
    addresses = ("http://localhost:3000/mcp", "https://tools.example.com", "http://[::1]:8080/a-b/c")
    assert load(tmp_path, mcp_servers=", ".join(addresses)).mcp_servers == addresses
    for wrong in (
        "localhost:3000",
        "ftp://a",
        "http://a b",
        "http://a/b;script-src *",
        "http://a/?q=1",
        "http://*",
        "*",
    ):
        with pytest.raises(StartupError, match="is no address"):
            load(tmp_path, mcp_servers=wrong)


def test_proxies(tmp_path: Path) -> None:
    found = load(tmp_path, trusted_proxies="127.0.0.1, 10.1.2.3/8,fd00::/8").trusted_proxies
    assert found == (ip_network("127.0.0.1/32"), ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    for wrong in ("*", "proxy", "10.0.0.0/99"):
        with pytest.raises(StartupError, match="is no address"):
            load(tmp_path, trusted_proxies=wrong)


@pytest.mark.parametrize(("text", "path"), [("/pie", "/pie"), ("/pie/", "/pie"), ("/a/b.c", "/a/b.c"), ("/", "")])
def test_a_root_path(tmp_path: Path, text: str, path: str) -> None:
    assert load(tmp_path, root_path=text).root_path == path


@pytest.mark.parametrize("text", ["pie", "//a", "/a/../b?", "/a b", "/é", "http://a"])
def test_what_is_no_path_ends_the_start(tmp_path: Path, text: str) -> None:
    with pytest.raises(StartupError, match="PIE_ROOT_PATH"):
        load(tmp_path, root_path=text)
