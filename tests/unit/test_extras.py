"""Who gets which MLX: the dependencies and extras of the package, read as an installer reads them."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
MAC = {"sys_platform": "darwin", "platform_machine": "arm64"}
OLD_MAC = {"sys_platform": "darwin", "platform_machine": "x86_64"}
LINUX = {"sys_platform": "linux", "platform_machine": "x86_64"}
WINDOWS = {"sys_platform": "win32", "platform_machine": "AMD64"}
ENGINES = {"mlx", "mlx-lm", "mlx-vlm", "llama-cpp-python"}


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
        (MAC, None, {"llama-cpp-python", "mlx", "mlx-lm"}),
        (OLD_MAC, None, {"llama-cpp-python"}),
        (LINUX, None, {"llama-cpp-python"}),
        (WINDOWS, None, {"llama-cpp-python"}),
        (MAC, "mlx", {"llama-cpp-python", "mlx", "mlx-lm", "mlx-vlm"}),
        (LINUX, "mlx", {"llama-cpp-python", "mlx[cpu]", "mlx-lm", "mlx-vlm"}),
        (LINUX, "mlx-cuda", {"llama-cpp-python", "mlx[cuda13]", "mlx-lm", "mlx-vlm"}),
    ],
)
def test_who_gets_which_engine(machine: dict[str, str], extra: str | None, expected: set[str]) -> None:
    assert engines(machine, extra) == expected
