"""Tools that run elsewhere: an MCP server that the operator allows, one that nobody allowed, and models that load."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from mcp.server import MCPServer
from starlette.middleware.cors import CORSMiddleware

from proxy_inference_engine.config import Config
from proxy_inference_engine.pool.entry import PoolEntry
from tests.api.pools import FakeLoader, pool_server
from tests.api.running import running
from tests.api.writing import call
from tests.page.visiting import DONE, Script, Visitor
from tests.polling import HANG_S, wait_until

TEXTS = {"ask": call("add", a=2, b=40), "result": "It is 42."}


@contextmanager
def mcp_server() -> Iterator[tuple[str, list[Any]]]:
    """Its address, and what was called. It lets pages of this machine in."""
    called: list[Any] = []
    server = MCPServer("sums")

    @server.tool()
    def add(a: int, b: int) -> str:
        """Adds two numbers."""
        called.append((a, b))
        return f"{a + b} @result"

    app = CORSMiddleware(
        server.streamable_http_app(),
        allow_origin_regex=r"http://127\.0\.0\.1:\d+",
        allow_methods=["POST"],
        allow_headers=["*"],
        expose_headers=["mcp-session-id"],
    )
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        program = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
        thread = threading.Thread(target=program.run, kwargs={"sockets": [sock]})
        thread.start()
        wait_until(lambda: program.started)
        yield f"http://127.0.0.1:{sock.getsockname()[1]}/mcp", called
        program.should_exit = True
        thread.join(HANG_S)
    assert not thread.is_alive()


def test_a_tool_of_an_mcp_server_runs_on_a_click(browser: Any) -> None:
    with mcp_server() as (address, called):
        config = Config(drain_seconds=0.2, mcp_servers=(address,))
        with running(Script(TEXTS), config=config) as live:
            visitor = Visitor(browser, live.url, allowed=(address,))
            page = visitor.page
            visitor.go("Tools")
            visitor.button("List its tools").click()
            page.locator(".tool-list", has_text="Adds two numbers.").wait_for()
            visitor.go("Chat")
            visitor.ask("@ask")
            page.locator(".call textarea").wait_for()
            assert called == []  # a model that asks for a call has not made one
            visitor.button("Run on the MCP server").click()
            page.wait_for_function("document.querySelector('.call textarea').value === '42 @result'")
            visitor.button("Send the results and go on").click()
            page.locator(DONE, has_text="It is 42.").wait_for()
            assert called == [(2, 40)]
            visitor.close()


def test_an_mcp_server_that_nobody_allowed_is_not_called(browser: Any) -> None:
    with mcp_server() as (address, called), running() as live:
        visitor = Visitor(browser, live.url)
        page = visitor.page
        visitor.go("Tools")
        page.fill("#mcp", address)
        visitor.button("List its tools").click()
        page.get_by_text(f'mcp_servers = ["{address}"]').wait_for()
        assert called == []
        visitor.close()
        fetched = visitor_policy(browser, live.url, address)
        assert fetched == "blocked"


def visitor_policy(browser: Any, url: str, address: str) -> str:
    """What the browser says to a script of the page that tries all the same."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(url)
    tried = "address => fetch(address, { method: 'POST' }).then(() => 'sent', () => 'blocked')"
    with page.expect_console_message(lambda message: "Content Security Policy" in message.text):
        said = str(page.evaluate(tried, address))
    context.close()
    return said


def test_a_model_shows_how_far_its_load_is(browser: Any) -> None:
    gate = threading.Event()
    loader = FakeLoader(gates={"slow": gate})
    with pool_server(
        PoolEntry("quick", Config(), is_preloaded=True), PoolEntry("slow", Config()), loader=loader
    ) as pool:
        visitor = Visitor(browser, pool.live.url)
        page = visitor.page
        page.locator(".model-picker").select_option("slow")
        visitor.button("Load now").click()
        page.locator(".load", has_text="25 %").wait_for()
        gate.set()
        page.locator(".load progress").wait_for(state="detached")
        assert page.locator(".model-picker option:checked").inner_text() == "slow"
        page.reload()
        page.locator(".model-picker option:checked", has_text="slow").wait_for(state="attached")
        visitor.close()
