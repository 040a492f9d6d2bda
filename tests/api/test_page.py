"""The page at /: its files, their headers, and that nothing in them leads elsewhere."""

import re

import httpx
import pytest

from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.server.page.route import PAGE, PATHS
from tests.api.running import Running, running

MAX_LINES = 400


@pytest.mark.parametrize("path", PATHS)
def test_every_file_is_served_with_a_strict_policy(server: Running, path: str) -> None:
    with server.http() as http:
        answer = http.get(path)
        assert answer.status_code == 200 and answer.headers["x-content-type-options"] == "nosniff"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy
        assert http.get(path, headers={"if-none-match": answer.headers["etag"]}).status_code == 304
        assert http.head(path).status_code == 200
        assert http.post(path).status_code == 405


def test_what_the_page_asks_for_is_there_and_ours() -> None:
    text = {name: file.data.decode() for name, file in PAGE.items()}
    wanted = re.findall(r'(?:src|href)="(page/[^"]+)"', text["index.html"])
    wanted += [f"page/{name}" for each in text.values() for name in re.findall(r'(?:from |import\()"\./([^"]+)"', each)]
    assert wanted and {f"/{path}" for path in wanted} <= set(PATHS)
    outside = re.compile(r"(?:src|href|url\(|import|fetch)\W{1,3}(?:https?:)?//\w", re.IGNORECASE)
    for name, each in text.items():
        assert not outside.search(each), name
        markup = (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "eval(",
            "new Function",
        )
        assert not any(way in each for way in (*markup, "createContextualFragment", "setHTML", " onclick=")), name
        assert each.count("\n") <= MAX_LINES, name


@pytest.mark.parametrize("path", ["/page/", "/page/nothing", "/page/..%2froute.py", "/page/../route.py", "/page/a/b"])
def test_nothing_else_of_the_disk_is_served(server: Running, path: str) -> None:
    with server.http() as http:
        assert http.get(path).status_code == 404


def test_the_page_may_call_whom_the_operator_lists_and_nobody_else(server: Running) -> None:
    address = "http://localhost:3000/mcp"
    with server.http() as http:
        assert "connect-src 'self';" in http.get("/").headers["content-security-policy"]
        assert http.get("/page/settings.json").json() == {"mcp_servers": []}
    with running(config=Config(drain_seconds=0.2, mcp_servers=(address,))) as live, live.http() as http:
        assert f"connect-src 'self' {address};" in http.get("/").headers["content-security-policy"]
        assert http.get("/page/settings.json").json() == {"mcp_servers": [address]}


def test_it_needs_no_key_and_what_it_asks_does() -> None:
    with running(config=Config(api_keys=(ApiKey("anna", "secret"),), drain_seconds=0.2)) as live, live.http() as http:
        assert http.get("/").status_code == http.get("/page/main.js").status_code == 200
        assert http.get("/v1/models").status_code == 401
        foreign = httpx.get(live.url, headers={"sec-fetch-site": "cross-site", "origin": "https://evil.com"})
        assert "access-control-allow-origin" not in foreign.headers
