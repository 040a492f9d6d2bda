"""The documents at the root: they are there, what they link to is there, and the tree in the README is the tree."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "proxy_inference_engine"
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"])
def test_it_is_there(name: str) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8")) > 500


def test_the_licence_is_apache() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text and "Version 2.0" in text


def test_the_readme_begins_with_one_sentence_and_two_commands() -> None:
    title, sentence, commands = (_split := readme().split("\n\n", 3))[:3]
    assert title == "# Proxy Inference Engine"
    assert sentence.endswith(".") and sentence.count(". ") == 0
    assert "make serve" in commands and "make test" in commands
    for section in ("## What works", "## Measured", "## The tree"):
        assert section in _split[3]


def test_the_tree_in_the_readme_is_the_tree() -> None:
    tree = readme().partition("## The tree")[2].partition("```\n")[2].partition("```")[0]
    shown = set(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE))
    assert shown == {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    top = set(re.findall(r"^(\w+)/ ", tree, re.MULTILINE))
    assert top == {"tests", "benchmarks", "docs", "scripts"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    missing = [link for link in _LINK.findall(text) if not (path.parent / link).exists()]
    assert missing == []
