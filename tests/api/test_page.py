"""The page at /: its files, their headers, and that nothing in them leads elsewhere."""

import base64
import hashlib
import re

import httpx
import pytest

from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.server.page.content import DOCS, INDEX, PAGE, VERSION
from proxy_inference_engine.server.page.route import PATHS
from tests.api.running import Running, running

MAX_LINES = 400
CLOSED = {
    *("default-src 'none'", "img-src 'self' data: blob:", "base-uri 'none'", "form-action 'self'"),
    *("frame-ancestors 'none'", "object-src 'none'"),
}


@pytest.mark.parametrize("path", PATHS)
def test_every_file_is_served_with_a_strict_policy(server: Running, path: str) -> None:
    with server.http() as http:
        answer = http.get(path)
        assert answer.status_code == 200 and answer.headers["x-content-type-options"] == "nosniff"
        policy = answer.headers["content-security-policy"]
        assert set(policy.split("; ")) >= CLOSED and "unsafe" not in policy and "*" not in policy
        tag = answer.headers["etag"]
        for known in (tag, f"W/{tag}", f'"other", {tag}'):
            assert http.get(path, headers={"if-none-match": known}).status_code == 304
        assert http.get(path, headers={"if-none-match": '"other"'}).status_code == 200
        plain = http.get(path, headers={"accept-encoding": "identity"})
        assert answer.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
        assert plain.content == answer.content and plain.headers["vary"] == "accept-encoding"
        is_kept = "immutable" in answer.headers["cache-control"]
        assert is_kept == (VERSION in path), "what has its digest in its path never changes, and nothing else is kept"
        assert http.head(path).status_code == 200
        assert http.post(path).status_code == 405


def test_what_the_page_asks_for_is_there_and_ours() -> None:
    text = {name: file.data.decode() for name, file in PAGE.items()}
    wanted = [path for name in (INDEX, DOCS) for path in re.findall(r'(?:src|href)="(page/[^"]+)"', text[name])]
    imported = [name for each in text.values() for name in re.findall(r'(?:from |import\()"\./([^"]+)"', each)]
    wanted += [f"page/{VERSION}/{name}" for name in imported]
    assert imported and {f"/{path}" for path in wanted} <= set(PATHS)
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
        assert name in (INDEX, DOCS) or each.count("\n") <= MAX_LINES, name  # in those two others stand inline


def test_no_rule_of_one_view_is_another_views() -> None:
    """All style sheets count in all views: a bare class in two of them is one that somebody did not know of."""
    owners: dict[str, str] = {}
    for name in ("page.css", "chat.css", "panels.css"):
        text = re.sub(r"/\*.*?\*/", "", PAGE[name].data.decode(), flags=re.DOTALL)
        for selectors in re.findall(r"(?:^|[{}])\s*([^{}@]+)\{", text):
            for bare in re.findall(r"(?:^|,)\s*(\.[\w-]+)\s*(?=,|$)", selectors.strip()):
                assert owners.setdefault(bare, name) == name, f"{bare} is in {owners[bare]} and in {name}"
    assert ".sides" in owners and ".plots" in owners


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_nothing_is_waited_for_before_the_first_paint(server: Running, path: str) -> None:
    """Styles and the theme are in the HTML, and only what has their hashes may be."""
    with server.http() as http:
        answer = http.get(path)
    assert "stylesheet" not in answer.text and not re.search(r"<script src", answer.text)
    for tag in ("script", "style"):
        inline = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in inline]
        wanted = " ".join(("'self'", *(f"'sha256-{each}'" for each in hashes)))
        assert inline and f"{tag}-src {wanted};" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path",
    ["/page/", "/page/nothing", "/page/..%2froute.py", "/page/../route.py", "/page/a/b", "/page/main.js",
     "/page/000000000000/main.js", f"/page/{VERSION}/nothing", f"/page/{VERSION}/index.html", f"/page/{VERSION}/a/b",
     f"/page/{VERSION}/..%2froute.py"],
)  # fmt: skip
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
        assert http.get("/").status_code == http.get(f"/page/{VERSION}/main.js").status_code == 200
        assert http.get("/v1/models").status_code == 401
        foreign = httpx.get(live.url, headers={"sec-fetch-site": "cross-site", "origin": "https://evil.com"})
        assert "access-control-allow-origin" not in foreign.headers


def test_its_files_and_its_looking_do_not_bury_the_log(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    """A visit loads fifty files, and a dashboard asks three times a second."""
    caplog.set_level("DEBUG")
    paths = (PATHS[-1], "/admin/stats", "/admin/requests", "/admin/cache")
    with server.http() as http:
        for path in (*paths, "/v1/models", "/admin/cache?nodes=none", f"/page/{VERSION}/nothing.js"):
            http.get(path)
    lines = [record for record in caplog.records if "route" in getattr(record, "fields", {})]
    assert [record.levelname for record in lines] == ["DEBUG"] * len(paths) + ["INFO"] * 3
