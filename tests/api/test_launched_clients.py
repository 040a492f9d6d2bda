"""What `pie launch` writes is tried on the programs it is for: each asks, calls a tool, and prints the answer."""

import subprocess
from pathlib import Path

import pytest

from tests.api.clients import CLAUDE_CODE, CODEX, OPENCODE, run
from tests.api.test_client_examples import ANSWER, THOUGHT, agent
from tests.api.writing import call
from tests.terminal import PIE, environment

QUESTION = "What does this folder hold?"
CASES = {
    "claude": (CLAUDE_CODE, ["claude", "-p", QUESTION], call("Read", file_path="{folder}/secret.txt")),
    "codex": (CODEX, ["codex", "exec", QUESTION], call("exec_command", cmd="cat secret.txt")),
    "opencode": (OPENCODE, ["opencode", "run", QUESTION], call("read", filePath="{folder}/secret.txt")),
}


@pytest.mark.soak  # the programs are large
@pytest.mark.parametrize("name", CASES)
def test_a_client_works_with_what_was_written_for_it(name: str, tmp_path: Path) -> None:
    client, words, tool_call = CASES[name]
    home, work, programs = tmp_path / "home", tmp_path / "work", client.folder() / "node_modules" / ".bin"
    for folder in (home, work):
        folder.mkdir()
    (work / "secret.txt").write_text("forty-two")
    subprocess.run(["git", "init", "--quiet"], cwd=work, check=True)  # without one Codex does not start
    first = THOUGHT + "I will look.\n" + tool_call.replace("{folder}", str(work))
    with agent(first, ANSWER, ANSWER) as (live, writer):
        variables = environment(home, PIE_SERVER=live.url, CODEX_HOME=str(home))
        subprocess.run([*PIE, "launch", name, "--write"], cwd=work, env=variables, check=True, capture_output=True)
        quiet = {"CODEX_HOME": str(home), "DISABLE_AUTOUPDATER": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
        printed = run([str(programs / words[0]), *words[1:]], work, home, quiet)
        assert ANSWER in printed
        assert any("forty-two" in prompt for prompt in writer.prompts)
