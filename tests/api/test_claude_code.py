"""Claude Code as a program, through whole loops: its own tools, a PDF, tools that it finds, a run that goes on."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.api.clients import CLAUDE_CODE, run
from tests.api.running import Running
from tests.api.test_client_examples import ANSWER, MCP_SERVER, THOUGHT, agent, statuses
from tests.api.writing import call

pytestmark = pytest.mark.soak  # the program is large

QUESTION = "What does this folder hold?"
PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>\nendobj\n2 0 obj<</Type/Pages/Kids[]/Count 0>>\nendobj\n%%EOF\n"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Where it runs. Its home is beside it."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "work" / "secret.txt").write_text("forty-two")
    return tmp_path / "work"


def claude(live: Running, work: Path, *words: str, **more: str) -> str:
    """What it prints. It sees its own settings only, and talks to nobody else."""
    program = CLAUDE_CODE.folder() / "node_modules" / ".bin" / "claude"
    variables: Mapping[str, str] = {
        "ANTHROPIC_BASE_URL": live.url,
        "ANTHROPIC_AUTH_TOKEN": "none",
        "ANTHROPIC_MODEL": "default",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "default",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        **more,
    }
    return run([str(program), "-p", *words], work, work.parent / "home", variables).strip()


def answered(live: Running) -> int:
    """Its requests to the model, all of which were answered."""
    found = {key: count for key, count in statuses(live).items() if key[0].startswith("/v1")}
    assert set(found) == {("/v1/messages", "200")}, found
    return found["/v1/messages", "200"]


def test_it_works_on_files(work: Path) -> None:
    """Two tools in a row, and then two at once."""
    path = str(work / "b.txt")
    both = call("Edit", file_path=path, old_string="x", new_string="y") + "\n" + call("Bash", command="cat secret.txt")
    with agent(THOUGHT + call("Write", file_path=path, content="x\n"), both, ANSWER) as (live, writer):
        assert claude(live, work, QUESTION, "--allowedTools", "Bash,Edit,Write") == ANSWER
        assert (work / "b.txt").read_text() == "y\n" and "forty-two" in writer.prompts[-1]
        assert answered(live) == 3


def test_it_reads_a_pdf(work: Path) -> None:
    """The model cannot see it, is told so, and the conversation goes on in another run."""
    (work / "a.pdf").write_bytes(PDF)
    texts = (THOUGHT + call("Read", file_path=str(work / "a.pdf")), ANSWER, "Nothing else.")
    with agent(*texts) as (live, writer):
        assert claude(live, work, QUESTION) == ANSWER
        assert "application/pdf: it cannot be read here." in writer.prompts[1]
        assert claude(live, work, "--continue", "And what else?") == "Nothing else."
        assert answered(live) == 3 and writer.prompts[2].count("it cannot be read here.") == 1


def test_it_finds_tools_by_searching(work: Path) -> None:
    """Those of MCP servers are not offered until a search has named them."""
    home = work.parent / "home"
    (home / "words.py").write_text(MCP_SERVER)
    servers = {"mcpServers": {"w": {"command": sys.executable, "args": [str(home / "words.py")]}}}
    (home / "mcp.json").write_text(json.dumps(servers))
    found = call("ToolSearch", query="select:mcp__w__look_up", max_results=1)
    with agent(THOUGHT + found, call("mcp__w__look_up", word="moss"), ANSWER) as (live, writer):
        words = (QUESTION, "--mcp-config", str(home / "mcp.json"), "--allowedTools", "mcp__w__look_up")
        assert claude(live, work, *words, ENABLE_TOOL_SEARCH="true") == ANSWER
        before, after, last = writer.prompts
        assert "Looks up a word." not in before and "Looks up a word." in after
        assert "a quiet plant" in last and answered(live) == 3


def test_it_answers_in_a_schema(work: Path) -> None:
    properties = {"secret": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["secret"], "additionalProperties": False}
    with agent(THOUGHT + call("StructuredOutput", secret="moss"), ANSWER) as (live, _):
        printed = claude(live, work, QUESTION, "--json-schema", json.dumps(schema), "--output-format", "json")
        assert json.loads(printed)["structured_output"] == {"secret": "moss"}
        assert answered(live) == 1
