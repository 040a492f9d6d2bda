"""Who may call, through a real server: names, pages in browsers, proxies before it."""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from proxy_inference_engine.config import ApiKey, Config, load_config
from proxy_inference_engine.config.keys import read_key_file
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import HELLO, MODEL, Running, running
from tests.api.test_http import exchange, head, status
from tests.polling import HANG_S, wait_until

KEYS = (ApiKey("anna", "key-of-anna"),)
ANNA = {"authorization": "Bearer key-of-anna"}
PAGE = "https://app.example.com"
ASK = {"model": MODEL, "messages": HELLO, "max_tokens": 3}
JSON = {"content-type": "application/json"}
ALLOW, EXPOSE = "access-control-allow-origin", "access-control-expose-headers"


@pytest.fixture(scope="module")
def keyed() -> Iterator[Running]:
    config = Config(api_keys=KEYS, allowed_origins=f"{PAGE},tauri://localhost", drain_seconds=0.2)  # type: ignore[arg-type]
    with running(FakeRunner(poison_id=ord("~")), config) as live:
        yield live


@pytest.mark.parametrize("host", ["host.docker.internal:8000", "pie", "nas.local", "box.ts.net", "evil.example"])
def test_with_a_key_the_name_does_not_matter(keyed: Running, host: str) -> None:
    with keyed.http(headers={"host": host}) as http:
        assert http.get("/v1/models", headers=ANNA).status_code == 200
        assert http.post("/v1/chat/completions", headers=ANNA, json=ASK).status_code == 200
        for path in ("/v1/models", "/admin/usage", "/metrics"):
            assert http.get(path).status_code == 401, "a name that was rebound opens nothing without the key"
        assert http.post("/v1/chat/completions", json=ASK).status_code == 401


def test_without_a_key_only_names_that_nobody_can_own() -> None:
    with running(config=Config(allowed_hosts="pie,box.ts.net", drain_seconds=0.2)) as live, live.http() as http:  # type: ignore[arg-type]
        for host in ("host.docker.internal:8000", "nas.local", "pie:80", "box.ts.net"):
            assert http.post("/v1/chat/completions", headers={"host": host}, json=ASK).status_code == 200
        for host in ("evil.example", "other.ts.net", "pie.evil.com"):
            for path in ("/v1/models", "/health", "/admin/requests", "/metrics"):
                refused = http.get(path, headers={"host": host, "x-forwarded-host": "localhost"})
                assert refused.status_code == 403 and refused.json()["error"]["code"] == "host_not_allowed"


def test_a_page_of_the_local_network_may_not_write_without_a_key() -> None:
    """Somebody there can answer for such a name, and a page that comes from it is the server's own to the browser."""
    config = Config(allowed_hosts="pie", drain_seconds=0.2)  # type: ignore[arg-type]
    with running(config=config) as live, live.http() as http:
        for host, status in (("nas.local", 403), ("box.internal:8000", 403), ("pie:80", 200), ("localhost:8000", 200)):
            answer = http.post("/v1/chat/completions", headers={"host": host, "origin": f"http://{host}"}, json=ASK)
            assert answer.status_code == status, host
            if status == 403:
                assert answer.json()["error"]["code"] == "origin_not_allowed"


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/admin/usage", "/metrics", "/nothing"]
)
def test_preflights_need_no_key_and_open_nothing(keyed: Running, path: str) -> None:
    wanted = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    with keyed.http() as http:
        answer = http.options(path, headers={"origin": PAGE, **wanted})
        assert answer.status_code == 204 and answer.content == b"" and answer.headers[ALLOW] == PAGE
        assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
        assert "origin" in answer.headers["vary"].lower() and answer.headers["x-request-id"]
        for origin in ("https://evil.com", "null", f"{PAGE}.evil.com"):
            refused = http.options(path, headers={"origin": origin, **wanted})
            assert refused.status_code == 403 and ALLOW not in refused.headers
            assert refused.headers["vary"] == "Origin"
        assert http.options(path, headers={"origin": PAGE}).status_code == 401, "that is no preflight"


def test_a_page_can_read_answers_streams_and_errors(keyed: Running) -> None:
    """Errors of every layer: a route's, a key's, a path's, a stream's, and those below HTTP."""
    with keyed.http(headers={"origin": PAGE, "sec-fetch-site": "cross-site"}) as http:
        answers = {
            200: http.post("/v1/chat/completions", headers=ANNA, json=ASK),
            400: http.post("/v1/messages", headers=ANNA, json={"model": MODEL}),
            401: http.post("/v1/messages", json=ASK),
            403: http.get("/admin/usage", headers=ANNA),
            404: http.get("/nothing", headers=ANNA),
            405: http.put("/v1/models", headers=ANNA),
            415: http.post("/v1/responses", headers=ANNA, content=b"{}"),
            413: http.post("/v1/responses", headers={**ANNA, **JSON}, content=b" " * (33 << 20)),
            500: http.post("/v1/completions", headers=ANNA, json={"model": MODEL, "prompt": "~"}),
        }  # fmt: skip
        streams = [
            http.post("/v1/chat/completions", headers=ANNA, json={**ASK, "stream": True}),
            http.post("/v1/completions", headers=ANNA, json={"model": MODEL, "prompt": "~", "stream": True}),
            http.post("/v1/messages", headers=ANNA, json={**ASK, "stream": True}),
        ]
    assert {number: answer.status_code for number, answer in answers.items()} == {number: number for number in answers}
    for answer in (*answers.values(), *streams):
        assert answer.headers[ALLOW] == PAGE and answer.headers.get_list("vary") == ["Origin"]
        assert "x-request-id" in answer.headers[EXPOSE] and answer.headers["x-request-id"]
        assert "access-control-allow-credentials" not in answer.headers
    assert all(each.headers["content-type"].startswith("text/event-stream") for each in streams)
    assert '"error"' in streams[1].text and '"error"' in answers[500].text


def test_errors_below_http_can_be_read_too(keyed: Running) -> None:
    many = [f"X-{number}: 1" for number in range(101)]
    response = exchange(keyed, head("/v1/messages", "Host: localhost", f"Origin: {PAGE}", *many)).decode().lower()
    assert status(response.encode()) == 431
    assert f"{ALLOW}: {PAGE}\r\n" in response and "vary: origin\r\n" in response and '"type":"error"' in response
    foreign = exchange(keyed, head("/health", "Host: localhost", "Origin: https://evil.com", *many)).decode().lower()
    assert ALLOW not in foreign


def test_other_pages_read_nothing(keyed: Running) -> None:
    with keyed.http(headers={"origin": "https://evil.com"}) as http:
        assert ALLOW not in http.get("/v1/models", headers=ANNA).headers
        refused = http.post("/v1/chat/completions", headers=ANNA, json=ASK)
        assert refused.status_code == 403 and ALLOW not in refused.headers
    with keyed.http() as http:
        plain = http.get("/v1/models", headers=ANNA)
        assert ALLOW not in plain.headers and plain.headers["vary"] == "Origin"


def test_every_page_with_a_key_and_none_without() -> None:
    config = Config(api_keys=KEYS, allowed_origins="*", drain_seconds=0.2)  # type: ignore[arg-type]  # parsed
    with running(config=config) as live, live.http(headers={"origin": "app://obsidian.md"}) as http:
        answer = http.post("/v1/chat/completions", headers=ANNA, json=ASK)
        assert answer.status_code == 200 and answer.headers[ALLOW] == "app://obsidian.md"
        assert http.post("/v1/chat/completions", json=ASK).status_code == 401
    with pytest.raises(StartupError, match="needs API keys"), running(config=Config(allowed_origins="*")):  # type: ignore[arg-type]
        pass


PROXIED = Config(
    api_keys=KEYS,
    root_path="/pie",
    trusted_proxies="127.0.0.1",  # type: ignore[arg-type]  # parsed
    allowed_hosts="pie.example.com",  # type: ignore[arg-type]  # parsed
    drain_seconds=0.2,
)


def test_a_path_before_ours(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with running(config=PROXIED) as live, live.http() as http:
        for path in ("/pie/v1/models", "/v1/models", "/pie/admin/usage", "/pie/metrics", "/pie/nothing"):
            assert http.get(path).status_code == 401
        assert http.get("/pie").status_code == http.get("/pie/").status_code == 200, "the page"
        assert http.get("/pie/health").status_code == http.get("/health").status_code == 200
        assert http.get("/pie/v1/models", headers=ANNA).status_code == 200
        assert http.get("/pie/admin/usage", headers=ANNA).status_code == 403
        assert http.get("/pie/pie/v1/models", headers=ANNA).status_code == 404
        error = http.post("/pie/v1/messages", headers=ANNA, json={}).json()
        assert error["type"] == "error", "the shape of its API"
        below = exchange(live, head("/pie/v1/messages", "Host: a", *(f"X-{n}: 1" for n in range(101))))
        assert b'"type":"error"' in below
        caplog.clear()
        said = {
            "x-forwarded-for": "203.0.113.5",
            "x-forwarded-host": "pie.example.com",
            "origin": "https://pie.example.com",
        }
        assert http.post("/pie/v1/chat/completions", headers={**ANNA, **said}, json=ASK).status_code == 200
        [line] = [record.fields for record in caplog.records if hasattr(record, "fields") and "route" in record.fields]
        assert line["client"] == "203.0.113.5" and line["route"] == "/v1/chat/completions"


def test_a_proxy_that_is_not_trusted_is_not_believed() -> None:
    config = Config(api_keys=KEYS, trusted_proxies="192.0.2.0/24", drain_seconds=0.2)  # type: ignore[arg-type]  # parsed
    said = {
        "x-forwarded-for": "203.0.113.5",
        "x-forwarded-host": "pie.example.com",
        "origin": "https://pie.example.com",
    }
    with running(config=config) as live, live.http(headers={**ANNA, **said}) as http:
        assert http.post("/v1/chat/completions", json=ASK).status_code == 403


# What nginx wants beside the recipe, all of it in a folder of the test's own.
NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    server {{
        listen 127.0.0.1:{port};
        {location}
    }}
}}
"""
GUIDE = (Path(__file__).parents[2] / "docs" / "deploying.md").read_text(encoding="utf-8")


FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def recipes(language: str) -> list[str]:
    return [text for its, text in FENCE.findall(GUIDE) if its == language]


def test_the_settings_of_the_guide_can_be_used(tmp_path: Path) -> None:
    proxied, pages, limits = (tmp_path / f"{number}.toml" for number in range(3))
    for path, text in zip((proxied, pages, limits), recipes("toml"), strict=True):
        path.write_text(text)
    assert load_config({"config": str(proxied)}, {}, tmp_path).root_path == PROXIED.root_path
    assert len(load_config({"config": str(pages)}, {}, tmp_path).allowed_origins) == 7
    found = load_config({"config": str(limits)}, {}, tmp_path).limits
    assert found is not None and found.of("alice").tokens_per_minute == 40000
    printed, file = recipes("")
    path = tmp_path / "keys"
    path.write_text(file)
    path.chmod(0o600)
    assert [key.is_admin for key in read_key_file(path)] == [False, False, True]
    assert [line.split()[0] for line in printed.splitlines()] == ["key", "line"]


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_behind_nginx(tmp_path: Path) -> None:
    """As docs/deploying.md has it: the path stays before ours, the Host is the client's, and streams come through."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with running(config=PROXIED) as live:
        settings = tmp_path / "nginx.conf"
        [location] = recipes("nginx")
        location = location.replace("http://127.0.0.1:8000", live.url)
        settings.write_text(NGINX.format(folder=tmp_path, port=port, location=location))
        nginx = subprocess.Popen(["nginx", "-c", str(settings), "-p", str(tmp_path)], stderr=subprocess.DEVNULL)
        try:
            base = f"http://127.0.0.1:{port}/pie"
            wait_until(lambda: _answers(f"{base}/health"))
            page = {"host": "pie.example.com", "origin": "http://pie.example.com"}
            assert httpx.get(f"{base}/v1/models", timeout=HANG_S).status_code == 401
            assert httpx.get(f"{base}/v1/models", headers=ANNA, timeout=HANG_S).status_code == 200
            text = httpx.post(
                f"{base}/v1/chat/completions", headers={**ANNA, **page}, json={**ASK, "stream": True}, timeout=HANG_S
            ).text
            assert text.endswith("data: [DONE]\n\n")
            chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
            assert chunks[-1]["choices"][0]["finish_reason"]
        finally:
            nginx.terminate()
            nginx.wait(HANG_S)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=HANG_S).status_code == 200
    except httpx.TransportError:
        return False
