"""Clients that are nobody's dependency here: each installed once, into a folder of its own, and run as a program."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import pytest

FOLDER = Path(__file__).parents[2] / ".cache" / "clients"
INSTALL_SECONDS = 120
RUN_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Client:
    name: str
    tool: Literal["pip", "npm"]
    packages: tuple[str, ...]

    def folder(self) -> Path:
        """Where it is. Skips the test where it cannot be installed."""
        problem = _install(self)
        if problem is not None:
            pytest.skip(f"{self.name} cannot be installed: {problem}")
        return FOLDER / self.name


# Pinned: what a test says about a client is about this version of it.
LANGCHAIN = Client("langchain", "pip", ("langchain-openai==1.7.3", "langchain-anthropic==1.7.7"))
VERCEL = Client(
    "vercel",
    "npm",
    (
        "ai@6.0.326",
        "@ai-sdk/openai@3.0.139",
        "@ai-sdk/anthropic@3.0.138",
        "@ai-sdk/openai-compatible@2.0.87",
        "zod@4.6.7",
    ),
)
TYPESCRIPT = Client("typescript", "npm", ("@anthropic-ai/sdk@1.10.0", "openai@6.49.0", "ws@8.23.0", "zod@4.6.7"))
OLLAMA = Client("ollama", "npm", ("ollama@0.6.4",))
LOGFIRE = Client("logfire", "pip", ("logfire==5.2.0", "opentelemetry-sdk==1.45.2"))
CODEX = Client("codex", "npm", ("@openai/codex@0.169.0",))
CLAUDE_CODE = Client("claude-code", "npm", ("@anthropic-ai/claude-code@2.1.328",))
OPENCODE = Client("opencode", "npm", ("opencode-ai@1.18.33",))


@cache  # a registry that does not answer is waited for once
def _install(client: Client) -> str | None:
    """Why not, or None."""
    if _is_whole(client):
        return None
    if client.tool == "npm" and not (shutil.which("npm") and shutil.which("node")):
        return "there is no node"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / f"{client.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of the tests may be at the same
        return None if _is_whole(client) else _install_anew(client, FOLDER / client.name)


def _install_anew(client: Client, folder: Path) -> str | None:
    """Why it failed, or None."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        subprocess.run(_words(client), cwd=folder, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        return f"it took more than {INSTALL_SECONDS} s"
    except subprocess.CalledProcessError as error:
        lines = str(error.stderr or error.stdout).splitlines()
        return next((line for line in lines if "error" in line.lower()), f"{client.tool} failed")
    (folder / "installed").write_text("\n".join(client.packages))
    return None


def _is_whole(client: Client) -> bool:
    done = FOLDER / client.name / "installed"
    return done.is_file() and done.read_text() == "\n".join(client.packages)


def _words(client: Client) -> list[str]:
    if client.tool == "pip":
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--retries=0", "--timeout=10"]
        return [*pip, "--disable-pip-version-check", "--no-compile", "--target=.", *client.packages]
    npm = ["npm", "install", "--prefix=.", "--no-audit", "--no-fund"]
    return [*npm, "--fetch-retries=0", "--fetch-timeout=20000", *client.packages]


def run(words: Sequence[str], cwd: Path, home: Path, variables: Mapping[str, str]) -> str:
    """What the program prints. It sees no setting, key or proxy of whoever runs the tests."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **variables}
    done = subprocess.run(
        words, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
