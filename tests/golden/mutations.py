"""Bodies that are fine, and everything that one wrong value somewhere in them makes of them."""

from collections.abc import Iterator
from typing import Any

from tests.golden.case import Json

WRONG: tuple[Any, ...] = (None, True, -1, 1.5, 10**6, "", "x", [], [0], {})
MISSING, UNKNOWN = "missing", "unknown"

Path = tuple[str | int, ...]


def mutations(body: Json) -> Iterator[tuple[str, Json]]:
    """Every value replaced by every wrong one, every key left out, an unknown key in every object; with names."""
    for path in _paths(body):
        name = _name(path)
        value = _at(body, path)
        if path:
            for wrong in WRONG:
                if wrong != value or type(wrong) is not type(value):
                    yield f"{name} = {wrong!r}", _with(body, path, wrong)
            if isinstance(path[-1], str):
                yield f"{name} {MISSING}", _without(body, path)
        if isinstance(value, dict):
            yield f"{name}.{UNKNOWN}", _with(body, (*path, UNKNOWN), 1)


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _paths(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _paths(item, (*path, index))


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def _with(value: Any, path: Path, wrong: Any) -> Any:
    """A copy along the path; what lies beside it is shared."""
    changed = value.copy()
    changed[path[0]] = wrong if len(path) == 1 else _with(value[path[0]], path[1:], wrong)
    return changed


def _without(body: Json, path: Path) -> Json:
    around = dict(_at(body, path[:-1]))
    del around[path[-1]]
    return _with(body, path[:-1], around) if len(path) > 1 else around


def _name(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".") or "body"
