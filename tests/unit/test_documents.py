"""The documents: they are there, short where they should be, and what they say of the source and of results is so."""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from benchmarks import picture

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "proxy_inference_engine"
FOLDERS = (".", "docs", "benchmarks", "benchmarks/results")
DOCUMENTS = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("*.md"))
TODAYS = [path for path in DOCUMENTS if path.name not in {"CHANGELOG.md", "log.md"}]  # those two tell of what was
ELSEWHERE = {"convert_lora_to_gguf.py"}  # a script of llama.cpp's
MAX_CHARS = 139
MAX_README_LINES = 70
_LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_URL = re.compile(r"https?://\S+")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"])
def test_it_is_there(path: str) -> None:
    assert len(read(path)) > 500


@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="no checkout")
def test_no_document_is_overlooked() -> None:
    tracked = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(tracked.split()) <= {name(path) for path in DOCUMENTS}


def test_the_licence_is_apache() -> None:
    text = read("LICENSE")
    assert "Apache License" in text and "Version 2.0" in text


def test_the_readme_is_one_screen_that_begins_with_two_sentences_and_two_commands() -> None:
    text = read("README.md")
    title, sentences, commands, rest = text.split("\n\n", 3)
    assert title == "# Proxy Inference Engine"
    assert len(re.findall(r"\.(?=\s|$)", sentences)) == 2 and sentences.endswith(".")
    assert "make serve" in commands and "make test" in commands
    assert len(text.splitlines()) <= MAX_README_LINES
    for page in ("docs/README.md", "docs/benchmarks.md", "benchmarks/results/speed.svg"):
        assert f"]({page})" in rest


def test_the_index_has_every_page() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {link for link, _ in _LINK.findall(read("docs/README.md")) if "/" not in link} >= pages


def test_the_tree_is_the_tree() -> None:
    tree = read("CONTRIBUTING.md").partition("## The tree")[2].partition("```\n")[2].partition("```")[0]
    shown = set(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE))
    assert shown == {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    for folder, line in re.findall(r"^  (\w+)/ +(.*)", tree, re.MULTILINE):
        below = {path.parent.name for path in (PACKAGE / folder).glob("*/__init__.py")}
        assert set(re.findall(r"(\w+)/", line)) == below, folder
    top = set(re.findall(r"^(\w+)/ ", tree, re.MULTILINE))
    assert top == {"tests", "benchmarks", "docs", "scripts", "deploy"}


def test_the_tree_of_the_benchmarks_has_every_file() -> None:
    tree = read("benchmarks/README.md").partition("## Files")[2].partition("```\n")[2].partition("```")[0]
    folder, shown = "", set()
    for indent, entry in re.findall(r"^( *)([\w.]+/?) ", tree, re.MULTILINE):
        folder = folder if indent else entry * entry.endswith("/")
        shown.add(f"{folder}{entry}" if indent else entry)
    root = ROOT / "benchmarks"
    files = {path.relative_to(root).as_posix() for path in root.rglob("*.py") if path.parts[-2] != "launchers"}
    folders = {f"{path.parent.relative_to(root).as_posix()}/" for path in root.glob("*/*.py")}
    without = {file for file in files if file.endswith(("__init__.py", "/__main__.py"))}
    assert shown == (files | folders) - without | {"servers/launchers/"}


def modules(text: str) -> list[Path]:
    """Those of the package whose path ends so."""
    return [path for path in PACKAGE.rglob(text.rpartition("/")[2]) if f"/{name(path)}".endswith(f"/{text}")]


def test_the_architecture_names_what_is_there() -> None:
    """Every module and folder, every function that stands after one, and every type."""
    text = " ".join(_FENCE.sub("", read("ARCHITECTURE.md")).split())
    named = set(re.findall(r"`(?!/)([^\s`]+\.(?:py|js|md|h))`", text))
    assert len(named) > 80
    missing = {each for each in named if not (ROOT / each).exists() and not modules(each)}
    folders = {path.name for root in (PACKAGE, ROOT / "tests") for path in root.rglob("*") if path.is_dir()}
    missing |= {each for each in re.findall(r"`([\w/<>]+)/`", text) if each.rpartition("/")[2] not in folders}
    for module, names in re.findall(r"`([\w/]+\.py)` → (`[\w.]+`(?:, `[\w.]+`)*)", text):
        source = "".join(path.read_text(encoding="utf-8") for path in modules(module))
        defined = set(re.findall(r"^ *(?:async def |def |class )?(\w+)", source, re.MULTILINE))
        missing |= {f"{module} {word}" for word in re.findall(r"\w+", names) if word not in defined}
    types = re.findall(r"`([A-Z]\w+)(?:\.\w+)*(?:\(\w+\))?`", text)
    assert len(types) > 40
    source = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    missing |= {each for each in types if not re.search(rf"^(class )?{each}\b", source, re.MULTILINE)}
    assert missing == set()


@pytest.mark.parametrize("path", TODAYS, ids=name)
def test_it_names_what_is_there(path: Path) -> None:
    """Source files, what Python is to run, and targets of make."""
    text = path.read_text(encoding="utf-8")
    spans = " ".join(re.findall(r"`([^`\n]+)`", text))
    files = set(re.findall(r"(?<!\S)[\w/]+\.(?:py|js)\b", spans)) - ELSEWHERE
    missing = {file for file in files | set(re.findall(r"python3? (scripts/\w+\.py)", text)) if not is_source(file)}
    for module in re.findall(r"python3? -m ((?:tests|benchmarks|proxy_inference_engine)[\w.]*\w)", text):
        file = module.replace(".", "/")
        if not is_source(f"{file}.py") and not is_source(f"{file}/__main__.py"):
            missing.add(module)
    targets = set(re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE))
    missing |= set(re.findall(r"(?:^|`)make ([a-z][\w-]*)", text, re.MULTILINE)) - targets
    assert missing == set()


@cache
def sources() -> list[str]:
    """Of the package, its tests and tools."""
    roots = (ROOT / folder for folder in ("src", "tests", "benchmarks", "scripts"))
    return [f"/{name(path)}" for root in roots for kind in ("py", "js") for path in root.rglob(f"*.{kind}")]


def is_source(file: str) -> bool:
    return any(path.endswith(f"/{file}") for path in sources())


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_lines_are_short(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.parent.name == "results":  # made by the benchmarks, with a column for every server
        lines = [line for line in lines if not line.startswith("|")]
    long = [line for line in lines if len(_URL.sub("", line)) > MAX_CHARS]
    assert long == [], f"prose: python scripts/wrap_markdown.py {name(path)}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    missing = []
    for link, anchor in _LINK.findall(text):
        target = path.parent / link if link else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(f"{link}#{anchor}")
    assert missing == []


def anchors(page: Path) -> set[str]:
    """Of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_picture_is_current() -> None:
    assert picture.PICTURE.read_text(encoding="utf-8") == picture.draw(picture.read()), (
        "run: python -m benchmarks.picture"
    )


def test_the_figures_in_the_readme_are_those_of_the_results() -> None:
    """A row's numbers stand, in their order, in one row of the file that it names."""
    text = read("README.md")
    rows = [row.split(" | ") for row in re.findall(r"^\| (?!\|).*benchmarks/results/.*$", text, re.MULTILINE)]
    assert len(rows) == 5
    for _what, ours, *others, source in rows:
        numbers = re.findall(r"^[\d,]+", "\n".join([ours, *others]), re.MULTILINE)
        results = read(_LINK.search(source)[1]).replace(",", "")  # type: ignore[index]
        pattern = ".*".join(rf"\| {number.replace(',', '')}\b" for number in numbers)
        assert re.search(pattern, results), numbers
