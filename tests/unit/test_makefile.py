"""What the make targets run, read from make itself without running anything."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def lines(*words: str, **variables: str) -> list[str]:
    """The commands of a target, in their order."""
    environment = {"PATH": os.environ["PATH"], **variables}
    answer = subprocess.run(
        ["make", "--no-print-directory", "-n", *words], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ((), ""),
        (("PORT=81",), "--port '81'"),
        (("HOST=0.0.0.0", "PORT=81", "MODEL=my model.gguf"), "--host '0.0.0.0' --port '81' --model 'my model.gguf'"),
        (("MODEL=it's; ls",), "--model 'it'\\''s; ls'"),
    ],
)
def test_serve_installs_and_starts(words: tuple[str, ...], flags: str) -> None:
    install, serve = lines("serve", *words)
    assert install == "python3 scripts/install.py"
    assert " ".join(serve.split()) == f"exec .venv/bin/pie serve {flags}".strip()


def test_native_installs_and_compiles() -> None:
    install, native = lines("native")
    assert install == "python3 scripts/install.py"
    assert native.strip() == "exec .venv/bin/pie optimize"


def test_the_variables_of_other_programs_are_not_ours() -> None:
    assert lines("serve", HOST="laptop", PORT="1", MODEL="x") == lines("serve")


def test_another_python_can_be_named() -> None:
    assert lines("install", "PYTHON=python3.12") == ["python3.12 scripts/install.py"]


def test_test_runs_everything_and_check_the_quick_part() -> None:
    lint = [
        "python3 scripts/install.py --dev",
        ".venv/bin/ruff check .",
        ".venv/bin/ruff format --check .",
        ".venv/bin/mypy",
    ]
    pytest = ".venv/bin/pytest -q -n logical --maxprocesses 4 --dist loadfile"
    assert lines("lint") == lint
    assert lines("check") == [*lint, f"{pytest} tests/unit"]
    assert lines("test") == [*lint, f"{pytest} -m 'not soak'"]
    assert lines("again")[-1] == ".venv/bin/pytest -q -m 'not soak' --last-failed"
    assert lines("soak")[-1] == ".venv/bin/python -m tests.soak.campaign"
    assert lines("bench")[-1] == ".venv/bin/python -m benchmarks"


def test_clean_leaves_the_installation() -> None:
    assert not any(".venv" in line for line in lines("clean"))


def test_without_a_target_there_is_help() -> None:
    text = "\n".join(lines())
    assert all(f"make {target}" in text for target in ("serve", "native", "test", "check", "soak", "bench", "clean"))


def test_ci_runs_make_test_and_what_failed_once_more() -> None:
    path = ROOT / ".ci" / "run"
    commands = [line.strip() for line in path.read_text().splitlines()]
    assert os.access(path, os.X_OK) and "set -euo pipefail" in commands
    # Linted before: a second try is for tests alone.
    assert commands.index("make lint") < commands.index("if ! make test; then") < commands.index("make again")
