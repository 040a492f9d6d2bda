"""The Dockerfile copies what is there and what its steps read. It is not built: few machines that test have Docker."""

import re
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy" / "Dockerfile").read_text()


def copied() -> list[str]:
    return [name for line in re.findall(r"^COPY (.*)$", TEXT, re.MULTILINE) for name in line.split()[:-1]]


def test_what_is_copied_is_there_and_not_ignored() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    let_through = [line.removeprefix("!") for line in lines if line.startswith("!")]
    for name in copied():
        assert (ROOT / name).exists(), name
        assert any(fnmatch(name, pattern) for pattern in let_through), name


def test_it_installs_and_serves_as_make_does() -> None:
    assert "python scripts/install.py" in TEXT and TEXT.rstrip().endswith('CMD ["serve"]')
    assert {"requirements.txt", "requirements-cluster.txt", "pyproject.toml", "scripts/install.py", "src"} <= set(
        copied()
    )
