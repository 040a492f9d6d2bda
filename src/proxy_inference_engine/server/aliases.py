"""Other names for the served model, as the operator wrote them: exact ones, and patterns such as `gpt-*`."""

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

from proxy_inference_engine.errors import StartupError

_WILD = frozenset("*?[")
MAX_NAME = 256  # longer names match no pattern


class Aliases:
    """Raises StartupError for an alias of a model that is not served."""

    def __init__(self, table: Mapping[str, str] | None = None, served: Collection[str] = ()) -> None:
        table = table or {}
        for name, target in table.items():
            if target not in served:
                raise StartupError(f"aliases: {name!r} stands for {target!r}, which is not served")
        self.names = tuple(name for name in table if _WILD.isdisjoint(name))
        self._patterns = tuple(name for name in table if name not in self.names)

    def has(self, name: str) -> bool:
        if name in self.names:
            return True
        return len(name) <= MAX_NAME and any(fnmatchcase(name, pattern) for pattern in self._patterns)
