"""Imports point down, libraries stay in their folders, files and functions stay small. Each failure names a line."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "proxy_inference_engine"
SOURCE = Path(__file__).parents[2] / "src" / PACKAGE

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60

# Who may import whom; what can be reached over several arrows may be imported too.
ARROWS = {
    "cli": {"server", "log"},
    "server": {"engine", "prompt", "output", "models", "config", "state_machine", "store", "images"},
    "models": {"engine", "runners", "config"},
    "engine": {"cache", "sampling", "state_machine", "runners"},
    "cache": {"runners.base"},
    "sampling": {"runners.base"},
    "prompt": {"formats", "runners.base"},
    "output": {"formats", "runners.base"},
    "state_machine": {"formats", "runners.base"},
    "config": set(),
    "formats": set(),
    "runners": set(),
    "store": set(),
    "images": set(),
    "log": set(),
}
EVERYONE = {"types", "errors", "interaction"}
ARROWS_OF_EVERYONE = {"types": {"errors"}, "interaction": {"types", "errors"}, "errors": set(), "": set()}

LIBRARIES = {
    "starlette": {"server"},
    "uvicorn": {"server"},
    "uvloop": {"server"},
    "httptools": {"server", "images"},
    "prometheus_client": {"server"},
    "pydantic": {"server", "config"},
    "pydantic_core": {"server", "config"},
    "jinja2": {"prompt"},
    "markupsafe": {"prompt"},
    "llama_cpp": {"runners.llama_cpp"},
    "llguidance": {"state_machine"},
    "cryptography": {"server.sealing"},
    "sqlite3": {"store"},
    "PIL": {"images", "runners.mlx"},
    "mlx": {"runners.mlx"},
    "mlx_lm": {"runners.mlx"},
    "mlx_vlm": {"runners.mlx"},
    "tokenizers": {"runners.mlx"},
    "numpy": {"runners", "cache", "sampling", "engine", "state_machine", "types", "images"},
}
MAY_IMPORT_IN_FUNCTIONS = {"cli", "models.load", "models.load_llama", "models.load_mlx"}


def is_within(module: str, folder: str) -> bool:
    return module == folder or module.startswith(folder + ".")


def reachable(folder: str) -> set[str]:
    found = {folder, *EVERYONE}
    queue = list(ARROWS.get(folder, ()))
    while queue:
        below = queue.pop()
        if below not in found:
            found.add(below)
            queue += ARROWS.get(below, ())
    return found


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and module of every import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield node.lineno, f"{PACKAGE}.(relative)"
        elif isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            yield from ((node.lineno, f"{PACKAGE}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""


def upward_imports(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    folder = module.split(".")[0]
    if folder == "__main__":
        return
    allowed = ARROWS_OF_EVERYONE[folder] | {folder} if folder in ARROWS_OF_EVERYONE else reachable(folder)
    for line, name in imports(tree):
        inside = name.removeprefix(f"{PACKAGE}.")
        if inside != name and not inside.startswith("__") and not any(is_within(inside, one) for one in allowed):
            yield line, f"{folder} may not import {inside}"


def strange_libraries(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for line, name in imports(tree):
        library = name.split(".")[0]
        if library == PACKAGE or (library in sys.stdlib_module_names and library not in LIBRARIES):
            continue
        if not any(is_within(module, folder) for folder in LIBRARIES.get(library, ())):
            yield line, f"{library} does not belong into {module}"


def hidden_imports(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    if any(is_within(module, folder) for folder in MAY_IMPORT_IN_FUNCTIONS):
        return
    for function in functions(tree):
        for line, name in imports(function):
            yield line, f"import of {name} inside {function.name}"


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def sizes(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    num_lines = max((node.end_lineno or 0 for node in tree.body), default=0)
    if num_lines > MAX_FILE_LINES:
        yield num_lines, f"{module} has {num_lines} lines, at most {MAX_FILE_LINES}"
    for function in functions(tree):
        num_lines = (function.end_lineno or 0) - function.lineno + 1
        if num_lines > MAX_FUNCTION_LINES:
            yield function.lineno, f"{function.name} has {num_lines} lines, at most {MAX_FUNCTION_LINES}"


RULES = (upward_imports, strange_libraries, hidden_imports, sizes)


def module_name(path: Path) -> str:
    parts = list(path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def violations(module: str, text: str, where: str) -> list[str]:
    tree = ast.parse(text)
    return [f"{where}:{line}: {what}" for rule in RULES for line, what in rule(module, tree)]


def test_source_follows_the_rules() -> None:
    paths = sorted(SOURCE.rglob("*.py"))
    assert len(paths) > 20
    found = [
        line
        for path in paths
        for line in violations(module_name(path), path.read_text(), str(path.relative_to(SOURCE.parents[1])))
    ]
    assert not found, "\n" + "\n".join(found)


def test_every_folder_has_arrows() -> None:
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert folders <= ARROWS.keys() | EVERYONE


LONG_FUNCTION = "def f() -> None:\n" + "    x = 1\n" * MAX_FUNCTION_LINES
P = PACKAGE


@pytest.mark.parametrize(
    ("module", "text", "num_violations"),
    [
        ("engine.engine", f"from {P}.server.app import create_app", 1),
        ("engine.engine", f"import {P}.server.app", 1),
        ("engine.engine", f"from {P} import server", 1),
        ("engine.engine", f"from {P}.config import Config", 1),
        ("engine.engine", f"from {P}.cache.prefix import PrefixCache", 0),
        ("engine.engine", "from . import base", 1),
        ("output.pipeline", f"from {P}.runners.base import Tokenizer", 0),
        ("output.pipeline", f"from {P}.runners.fake import FakeRunner", 1),
        ("output.pipeline", f"from {P}.engine.base import Item", 1),
        ("types", f"from {P}.errors import PieError", 0),
        ("errors", f"from {P}.types import Request", 1),
        ("server.app", f"from {P}.runners.fake import FakeRunner", 0),
        ("server.app", f"from {P}.cli.main import main", 1),
        ("server.app", f"from {P} import __version__", 0),
        ("server.app", "import starlette.routing", 0),
        ("engine.engine", "import starlette.routing", 1),
        ("output.events", "from pydantic import BaseModel", 1),
        ("runners.fake", "import llama_cpp", 1),
        ("runners.llama_cpp.runner", "import llama_cpp", 0),
        ("server.app", "import requests", 1),
        ("server.app", "import sqlite3", 1),
        ("store.writer", "import sqlite3", 0),
        ("store.store", f"from {P}.server.ids import new_id", 1),
        ("engine.engine", "def f() -> None:\n    import json", 1),
        ("engine.engine", "class A:\n    async def f(self) -> None:\n        from json import loads", 1),
        ("cli.serve", "def f() -> None:\n    import json", 0),
        ("models.load", "def f() -> None:\n    import json", 0),
        ("engine.engine", LONG_FUNCTION, 1),
        ("engine.engine", LONG_FUNCTION.replace("    x = 1\n", "", 1), 0),
        ("engine.engine", "x = 1\n" * (MAX_FILE_LINES + 1), 1),
        ("engine.engine", "x = 1\n" * MAX_FILE_LINES, 0),
    ],
)
def test_rules_catch_what_they_should(module: str, text: str, num_violations: int) -> None:
    assert len(violations(module, text, "file.py")) == num_violations


def test_of_llama_cpp_python_only_the_low_level_api_is_used() -> None:
    """Its classes have a cache, samplers and chat formats of their own; the functions are all lower case."""
    names = re.compile(r"llama_cpp\.([A-Za-z_]\w*)")
    folder = SOURCE / "runners" / "llama_cpp"
    used = {name for path in folder.glob("*.py") for name in names.findall(path.read_text())}
    assert any(name == "llama_decode" for name in used)
    assert not {name for name in used if name.startswith("Llama")}
