"""The examples of docs/ for clients that are no dependencies of ours, run as they stand but for the address.

The blocks for them are fenced `py` (LangChain), `js` (Vercel AI SDK), `toml` and `bash` (Codex) and `sh` (Claude Code).
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy_inference_engine.runners.base import Logits, Row
from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.clients import CLAUDE_CODE, CODEX, LANGCHAIN, VERCEL, run
from tests.api.running import Running, running
from tests.api.writing import Writer, call

DOCS = Path(__file__).parents[2] / "docs"
ADDRESS = "http://127.0.0.1:8000"
PAGES = ("chat", "responses", "messages")
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}

THOUGHT = "<think>\nI do not know yet.\n</think>\n\n"
ANSWER = "It holds one secret."


def example(page: str, language: str, server: Running, start: str = "") -> str:
    text = (DOCS / f"{page}.md").read_text()
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (block,) = [each for each in blocks if each.startswith(start)]
    return str(block.replace(ADDRESS, server.url))


def statuses(server: Running) -> dict[tuple[str, str], int]:
    """How often each route gave each status."""
    with server.http() as http:
        text = http.get("/metrics").text
    found = re.findall(r'^pie_http_requests_total\{route="(.*?)",status="(\d+)"\} (\d+)', text, re.MULTILINE)
    return {(route, status): int(count) for route, status, count in found}


class Terse(FakeRunner):
    """Closes its strings: where a schema leaves room for more, others go on until the context is full."""

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        outputs = super().forward(rows)
        for logits in outputs:
            logits[:, ord('"')] += 6
        return outputs


@pytest.fixture
def fresh() -> Iterator[Running]:
    with running(Terse()) as live:
        yield live
        live.wait_idle()


@pytest.mark.parametrize("page", PAGES)
def test_langchain(fresh: Running, page: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", example(page, "py", fresh)]
    printed = run(words, tmp_path, tmp_path, {"PYTHONPATH": str(LANGCHAIN.folder())})
    assert re.search(r"It is sunny in (Paris|Rome)\. \{'input_tokens': ", printed)
    if page == "chat":
        assert re.search(r"^colour='(blue|grey)' is_sunny=(True|False)$", printed, re.MULTILINE)
    assert statuses(fresh) == {(PATHS[page], "200"): 4 if page == "chat" else 3}


@pytest.mark.parametrize("page", PAGES)
def test_vercel(fresh: Running, page: str, tmp_path: Path) -> None:
    words = ["node", "--input-type=module", "--eval", example(page, "js", fresh)]
    printed = run(words, VERCEL.folder(), tmp_path, {})
    assert re.search(r"outputTokens: [1-9]\d*,", printed) and re.search(r"It is sunny in (Paris|Rome)\. .", printed)
    assert re.search(r"^\{ colour: '(blue|grey)', isSunny: (true|false) \}$", printed, re.MULTILINE)
    assert statuses(fresh) == {(PATHS[page], "200"): 4}


# What else speaks OpenAI's format: what each client prints, and how many requests that takes.
@pytest.mark.parametrize(
    ("page", "language", "pattern", "count"),
    [
        ("completions", "py", r"^'.*'$", 2),
        ("completions", "js", r"outputTokens: [1-9]\d*,", 2),
        ("embeddings", "py", r"^\d+ -?[\d.]+ -?[\d.]+$", 2),
        ("embeddings", "js", r"^\d+ \[ -?[\d.]+, -?[\d.]+ \] \{ tokens: [1-9]\d* \}$", 2),
    ],
)
def test_other_pages(fresh: Running, page: str, language: str, pattern: str, count: int, tmp_path: Path) -> None:
    code = example(page, language, fresh)
    if language == "py":
        printed = run([sys.executable, "-c", code], tmp_path, tmp_path, {"PYTHONPATH": str(LANGCHAIN.folder())})
    else:
        printed = run(["node", "--input-type=module", "--eval", code], VERCEL.folder(), tmp_path, {})
    assert re.search(pattern, printed, re.MULTILINE), printed
    assert statuses(fresh) == {(f"/v1/{page}", "200"): count}


@contextmanager
def agent(*texts: str) -> Iterator[tuple[Running, Writer]]:
    """A server whose model calls a tool, sees the result, and answers. Agents begin with a hundred thousand bytes."""
    writer = Writer(texts, max_tokens=300_000)
    with running(writer, max_cache_bytes=1 << 26) as live:
        yield live, writer
        live.wait_idle()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Where an agent is asked about. Its home is beside it."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "work" / "secret.txt").write_text("forty-two")
    return tmp_path / "work"


@pytest.mark.soak  # the programs of both agents are large
def test_codex(work: Path) -> None:
    home = work.parent / "home"
    program = CODEX.folder() / "node_modules" / ".bin"
    subprocess.run(["git", "init", "--quiet"], cwd=work, check=True)  # elsewhere it does not start
    settings = """
        check_for_update_on_startup = false
        analytics.enabled = false
        sandbox_mode = "read-only"
    """
    with agent(THOUGHT + "I will look.\n" + call("exec_command", cmd="cat secret.txt"), ANSWER) as (live, writer):
        # A byte is a token here, so it begins with far more of them than with any model.
        (home / "config.toml").write_text(settings + example("responses", "toml", live).replace("40960", "280000"))
        command = f'PATH="{program}:$PATH"; ' + example("responses", "bash", live)
        assert run(["sh", "-c", command], work, home, {"CODEX_HOME": str(home)}).strip() == ANSWER
        assert statuses(live) == {("/v1/responses", "200"): 2}
        check_loop(live, writer)


MCP_SERVER = """
import json, sys
schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
tools = [{"name": "look_up", "description": "Looks up a word.", "inputSchema": schema}]
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answers = {
        "initialize": {
            "protocolVersion": asked.get("params", {}).get("protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "words", "version": "1"},
        },
        "tools/list": {"tools": tools},
        "tools/call": {"content": [{"type": "text", "text": "a quiet plant"}]},
    }
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answers.get(asked["method"], {})}), flush=True)
"""


@pytest.mark.soak
@pytest.mark.parametrize("has_sockets", [False, True])
def test_codex_with_mcp(work: Path, has_sockets: bool) -> None:
    home = work.parent / "home"
    program = CODEX.folder() / "node_modules" / ".bin"
    subprocess.run(["git", "init", "--quiet"], cwd=work, check=True)
    (home / "words.py").write_text(MCP_SERVER)
    with agent("I look it up.\n" + call("mcp__w__look_up", word="moss"), ANSWER) as (live, writer):
        settings = f"""
            check_for_update_on_startup = false
            analytics.enabled = false
            sandbox_mode = "read-only"
            {example("responses", "toml", live).replace("40960", "280000")}
            supports_websockets = {str(has_sockets).lower()}
            [mcp_servers.w]
            command = "{sys.executable}"
            args = ["{home / "words.py"}"]
            default_tools_approval_mode = "approve"
        """
        (home / "config.toml").write_text(settings)
        command = f'PATH="{program}:$PATH"; ' + example("responses", "bash", live)
        assert run(["sh", "-c", command], work, home, {"CODEX_HOME": str(home)}).strip() == ANSWER
        assert "a quiet plant" in writer.prompts[-1]
        # Over a socket it makes its prompt ready first.
        assert statuses(live)["/v1/responses", "200"] == (3 if has_sockets else 2)
        assert (("/v1/responses", "101") in statuses(live)) == has_sockets


@pytest.mark.soak
def test_claude_code(work: Path) -> None:
    home = work.parent / "home"
    program = CLAUDE_CODE.folder() / "node_modules" / ".bin"
    path = str(work / "secret.txt")
    with agent(THOUGHT + "I will look.\n" + call("Read", file_path=path), ANSWER) as (live, writer):
        command = f'PATH="{program}:$PATH"; ' + example("messages", "sh", live, "export")
        variables = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
        assert run(["sh", "-c", command], work, home, variables).strip() == ANSWER
        answered = {key: count for key, count in statuses(live).items() if key[0].startswith("/v1")}
        assert answered == {("/v1/messages", "200"): 2}
        check_loop(live, writer)
        assert "forty-two" in writer.prompts[-1]


def check_loop(live: Running, writer: Writer) -> None:
    """What the model wrote and thought came back with the tool's result, and all of it was found in the cache."""
    before, after = writer.prompts
    assert after.startswith(before) and "What does this folder hold?" in before
    came = after.removeprefix(before)
    assert "I do not know yet." in came and "I will look." in came and "<tool_response>" in came
    assert live.stats.total_prompt_tokens_cached > len(before.encode())
