"""The examples in the pages of docs/, for the tests that run them."""

import re
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
ADDRESS = "http://127.0.0.1:8000"  # where the examples look for the server


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language, in their order: all that there are, and at least one."""
    text = (DOCS / page).read_text()
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(found) == text.count(f"```{language}\n") > 0, f"{language} in docs/{page}"
    return found


def run_python(page: str, address: str, after_each: Callable[[], None] = lambda: None) -> dict[str, object]:
    """Run the Python blocks of a page as one program; the names it leaves."""
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        exec(compile(block.replace(ADDRESS, address), f"docs/{page}", "exec"), names)
        after_each()
    return names
