"""Imports point down, libraries stay in their folders, files and functions stay small. Each failure names a line."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = P = "proxy_inference_engine"
ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / PACKAGE

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
# "And …" leans on a neighbour, "Of …" on the name it stands under.
LEANING = {"Also", "And", "But", "Likewise", "Or", "So", "As", "By", "It", "Of", "To", "Until", "With", "Without"}
MIN_LINES_FOR_ONE = 30
ONE_EACH = {"cli", "formats", "server.apis"}  # a file for each command, family, API
MIN_WORDS_OF_SAME = 6  # "The same behind it." says nothing alone

# Who may import whom; what can be reached over several arrows may be imported too.
ARROWS = {
    "cli": {"python", "server", "log"},
    "python": {"server"},
    "server": {"pool", "store", "log"},
    "pool": {"served"},
    "served": {"engine", "prompt", "output", "models", "config", "state_machine", "images"},
    "models": {"engine", "far", "runners", "config"},
    "far": {"engine", "runners.base"},
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
ARROWS_OF_EVERYONE = {"types": {"errors"}, "interaction": {"types", "errors"}, "errors": set(), "": {"python"}}

LIBRARIES = {
    "starlette": {"server"},
    "uvicorn": {"server"},
    "uvloop": {"server"},
    "httptools": {"server", "images", "far"},
    "prometheus_client": {"server"},
    "pydantic": {"server", "config", "python"},
    "pydantic_core": {"server", "config", "python"},
    "jinja2": {"prompt"},
    "markupsafe": {"prompt"},
    "llguidance": {"state_machine"},
    "python_multipart": {"server.http.multipart"},
    "cryptography": {"server.apis.shared.sealer"},
    "sqlite3": {"store.sqlite"},
    "psycopg": {"store.postgres"},
    "truststore": {"models.download"},
    "psutil": {"config.hardware"},
    "opentelemetry": {"server.spans", "cli.traces"},
    "logfire": {"cli.traces"},
    "hf_xet": {"models.download.xet"},
    "PIL": {"images", "runners.mlx", "runners.vision", "far.images"},
    "mlx": {"runners.mlx"},
    "mlx_lm": {"runners.mlx"},
    "mlx_vlm": {"runners.mlx"},
    "tokenizers": {"runners.tokenizer_json"},
    "numpy": {"runners", "cache", "sampling", "engine", "far", "state_machine", "types", "images"},
}
MAY_IMPORT_IN_FUNCTIONS = {"__main__", "cli", "models.load", "models.download.xet", "store.store"}

# Inside the server, an API knows itself and what all share. Who else may know of one:
APIS = "server.apis"
SHARED = f"{APIS}.shared"
MAY_KNOW_APIS = {
    "server.openapi.operations": (APIS,),  # the list of every route
    "server.openapi.document": (SHARED,),
    "server.app": {APIS},
    "server.process": {APIS},
    "python.local_model": {f"{APIS}.chat", SHARED},
    "server.state": {f"{APIS}.responses.run", f"{APIS}.shared.sealer", f"{APIS}.responses.teller"},
}


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


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def upward_imports(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    folder = module.split(".")[0]
    if folder == "__main__":
        return
    allowed = ARROWS_OF_EVERYONE[folder] | {folder} if folder in ARROWS_OF_EVERYONE else reachable(folder)
    for line, name in imports(tree):
        inside = name.removeprefix(f"{PACKAGE}.")
        if inside != name and not inside.startswith("__") and not any(is_within(inside, one) for one in allowed):
            yield line, f"{folder} may not import {inside}"


def foreign_apis(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    allowed = set(MAY_KNOW_APIS.get(module, ()))
    if is_within(module, APIS):
        allowed |= {".".join(module.split(".")[:3]), SHARED}
    for line, name in imported(tree):
        inside = name.removeprefix(f"{PACKAGE}.")
        if is_within(inside, APIS) and not any(is_within(inside, one) for one in allowed):
            yield line, f"{module} may not know of {inside}"


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


def leaning_docstrings(_module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Those that begin as if one had just read something else: they are the rest of a sentence."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            words = (ast.get_docstring(node) or "").split()
            if words and (words[0] in LEANING or (words[:2] == ["The", "same"] and len(words) < MIN_WORDS_OF_SAME)):
                yield node.lineno, f"the docstring of {node.name} leans on another"


RULES = (upward_imports, foreign_apis, strange_libraries, hidden_imports, sizes, leaning_docstrings)


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
        line for path in paths for line in violations(module_name(path), path.read_text(), str(path.relative_to(ROOT)))
    ]
    assert not found, "\n" + "\n".join(found)


def test_a_small_file_has_more_than_one_user() -> None:
    """Else it is a part of whoever uses it."""
    trees = {module_name(path): ast.parse(path.read_text()) for path in SOURCE.rglob("*.py") if path.stem[0] != "_"}
    used = [(user, name.removeprefix(f"{P}.")) for user, tree in trees.items() for _, name in set(imports(tree))]
    small = [
        module
        for module, tree in trees.items()
        if (tree.body[-1].end_lineno or 0) < MIN_LINES_FOR_ONE and not any(is_within(module, one) for one in ONE_EACH)
    ]
    assert len(small) > 3
    assert [module for module in small if len({user for user, name in used if name == module}) < 2] == []


# Things, not what is done: "a listing" is one.
NOUNS = {"binding", "embedding", "greeting", "keyring", "listing", "reasoning", "thinking", "tracing"}


def test_modules_are_named_after_things() -> None:
    names = {path.stem for path in SOURCE.rglob("*.py") if path.stem.endswith("ing")}
    assert sorted(names - NOUNS) == []
    assert NOUNS - names == set(), "not there any more"


# The two runners mirror each other: what they share in name they share in meaning.
MIRRORED = {"Adapters", "Batch", "Family", "KvSegment", "SegmentPacker", "Settings", "Vision"}


def type_names(tree: ast.Module) -> Iterator[str]:
    """Public classes and aliases of types at the top of a module."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if isinstance(node.value, ast.Call | ast.Constant) or name.isupper() or not name[0].isupper():
                continue
        else:
            continue
        if not name.startswith("_"):
            yield name


@cache
def homes_of_types() -> dict[str, list[str]]:
    """The modules that have a type of each name."""
    homes: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for name in type_names(ast.parse(path.read_text())):
            homes.setdefault(name, []).append(module_name(path))
    return homes


def test_a_type_name_means_one_thing() -> None:
    twice = {name: modules for name, modules in homes_of_types().items() if len(modules) > 1}
    mirrored = {
        name for name in MIRRORED if sorted(module.split(".")[1] for module in twice[name]) == ["llama_cpp", "mlx"]
    }
    assert twice.keys() - mirrored == set(), {name: twice[name] for name in twice.keys() - mirrored}


# Where the words of each part of docs/words.md may be the names of types: there alone, so that a word means one thing.
ROOMS_OF_WORDS = {
    "At the edge": {"server", "pool", "served", "engine.base", "cli.talk", "models.fit", "interaction", "types"},
    "What the answer may be": {"formats", "state_machine", "types"},
    "In the engine": {"engine", "served.stream", "runners.base", "runners.llama_cpp.product", "types"},
    "In the cache": {"cache", "runners.base"},
    "On the way back": {"output", "served", "server.http", "types"},
    "What is kept": {"store", "server.apis"},
}


def words_by_part(text: str) -> dict[str, list[str]]:
    parts = re.findall(r"^## (.*)\n((?:(?!## ).*\n?)*)", text, re.MULTILINE)
    return {title: ", ".join(re.findall(r"^\*\*(.+?)\*\*", part, re.MULTILINE)).split(", ") for title, part in parts}


def test_a_type_has_no_word_s_name_that_means_something_else() -> None:
    words = words_by_part((ROOT / "docs" / "words.md").read_text(encoding="utf-8"))
    assert words.keys() == ROOMS_OF_WORDS.keys()
    assert sum(map(len, words.values())) > 60
    compound = {name for names in words.values() for name in names if re.search(r"[a-z][A-Z]", name)}
    assert compound and compound <= homes_of_types().keys()
    strange = [
        f"{module}: {name} is a word of {part!r}"
        for part, names in words.items()
        for name in set(names) - MIRRORED
        for module in homes_of_types().get(name, ())
        if not any(is_within(module, room) for room in ROOMS_OF_WORDS[part])
    ]
    assert strange == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("class Row: ...", ["Row"]),
        ("class _Row: ...", []),
        ("Row = int | str", ["Row"]),
        ("Row = Annotated[int, 1]", ["Row"]),
        ("ROW = (1, 2)", []),
        ("T = TypeVar('T')", []),
        ("rows = [1]", []),
    ],
)
def test_what_counts_as_the_name_of_a_type(text: str, names: list[str]) -> None:
    assert list(type_names(ast.parse(text))) == names


def test_every_folder_has_arrows() -> None:
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert folders <= ARROWS.keys() | EVERYONE


LONG_FUNCTION = "def f() -> None:\n" + "    x = 1\n" * MAX_FUNCTION_LINES


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
        ("runners.llama_cpp.runner", "import llama_cpp", 1),
        ("server.app", "import requests", 1),
        ("server.app", "import sqlite3", 1),
        ("store.writer", "import sqlite3", 1),
        ("store.sqlite.room", "import sqlite3", 0),
        ("store.store", f"from {P}.server.ids import new_id", 1),
        ("served.model", f"from {P}.engine.base import Stats", 0),
        ("served.model", f"from {P}.server.http.wire import dumps", 1),
        ("served.model", f"from {P}.store import Store", 1),
        ("served.ask", "from pydantic import BaseModel", 1),
        ("served.stream", "from starlette.requests import Request", 1),
        ("server.http.sse", f"from {P}.server.http.body import ClientGone", 0),
        ("server.http.sse", f"from {P}.served.stream import Counts", 0),
        ("server.http.errors", f"from {P}.server.apis.shared.fields import Schema", 1),
        ("server.http.errors", f"from {P}.server.apis.messages.errors import SHAPE", 1),
        ("server.http.errors", f"from {P}.server import apis", 1),
        ("server.apis.chat.route", f"from {P}.server.apis.chat.ask import make_ask", 0),
        ("server.apis.chat.route", f"from {P}.server.apis.shared.fields import validate", 0),
        ("server.apis.chat.route", f"from {P}.server.http.wire import new_id", 0),
        ("server.apis.chat.route", f"from {P}.server.apis.responses.ask import make_ask", 1),
        ("server.apis.chat.route", f"from {P}.server.apis import responses", 1),
        ("server.apis.models", f"from {P}.server.apis.shared.route import json_response", 0),
        ("server.apis.models", f"from {P}.server.apis.chat.schema import ChatRequest", 1),
        ("server.apis.shared.route", f"from {P}.server.apis.shared.fields import Schema", 0),
        ("server.apis.shared.route", f"from {P}.server.apis.chat.schema import ChatRequest", 1),
        ("server.state", f"from {P}.server.apis.shared.sealer import Sealer", 0),
        ("server.state", f"from {P}.server.apis.responses.route import follow", 1),
        ("server.metrics", f"from {P}.server.apis.responses.run import ResponseRuns", 1),
        ("server.app", f"from {P}.server.apis.chat.route import create_chat_completion", 0),
        ("cli.serve", f"from {P}.server.apis.chat.route import create_chat_completion", 1),
        ("engine.engine", "def f() -> None:\n    import json", 1),
        ("engine.engine", "class A:\n    async def f(self) -> None:\n        from json import loads", 1),
        ("cli.serve", "def f() -> None:\n    import json", 0),
        ("models.load", "def f() -> None:\n    import json", 0),
        ("engine.engine", 'def f() -> None:\n    """The same behind it."""', 1),
        ("engine.engine", 'class A:\n    """And of those that wait."""', 1),
        ("engine.engine", 'def f() -> None:\n    """Of the whole answer, about."""', 1),
        ("engine.engine", 'def f() -> None:\n    """How long the whole answer is, about."""', 0),
        ("engine.engine", 'def f() -> None:\n    """The same model with one of its adapters."""', 0),
        ("engine.engine", LONG_FUNCTION, 1),
        ("engine.engine", LONG_FUNCTION.replace("    x = 1\n", "", 1), 0),
        ("engine.engine", "x = 1\n" * (MAX_FILE_LINES + 1), 1),
        ("engine.engine", "x = 1\n" * MAX_FILE_LINES, 0),
    ],
)
def test_rules_catch_what_they_should(module: str, text: str, num_violations: int) -> None:
    assert len(violations(module, text, "file.py")) == num_violations
