"""Names for the models of a pool: their own, those with an adapter, aliases and patterns. None ever becomes a path."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.pool.member import Member

DEFAULT = "default"  # the first model
MAX_NAME = 256  # longer names match no pattern
_WILD = frozenset("*?[")


class ModelNames:
    """Raises StartupError for a name that two models or adapters have, and for an alias of what is not listed."""

    def __init__(self, members: Sequence[Member], aliases: Mapping[str, str]) -> None:
        self._first = members[0] if members else None
        self.exact: dict[str, Member] = {member.id: member for member in members}
        if len(self.exact) < len(members):
            raise StartupError("two models have the same name")
        self._patterns: dict[str, Member] = {}
        self.adapters: dict[str, str] = {}  # of names that mean a model with one
        for member in members:
            for adapter in member.entry.config.adapters or ():
                self._add_adapter(member, adapter)
        for name, target in aliases.items():
            self._add_alias(name, target)

    def _add_adapter(self, member: Member, adapter: str) -> None:
        name = f"{member.id}:{adapter}"
        if name in self.exact:
            raise StartupError(f"the adapter {adapter!r} of {member.id!r} would be called {name!r}, which another is")
        self.exact[name], self.adapters[name] = member, adapter

    def _add_alias(self, name: str, target: str) -> None:
        meant = self.exact.get(target) or (self._first if target == DEFAULT else None)
        if meant is None:
            raise StartupError(f"aliases: {name!r} stands for {target!r}, which is not served")
        (self.exact if _WILD.isdisjoint(name) else self._patterns).setdefault(name, meant)
        if target in self.adapters:
            self.adapters.setdefault(name, self.adapters[target])

    def get(self, name: str) -> Member | None:
        member = self.exact.get(name)
        if member is not None:
            return member
        if name == DEFAULT:
            return self._first
        if len(name) > MAX_NAME:
            return None
        return next((member for pattern, member in self._patterns.items() if fnmatchcase(name, pattern)), None)

    def adapter_of(self, name: str | None) -> str | None:
        """The adapter that a name means beside its model."""
        if name is None:
            return None
        if name not in self.exact and name != DEFAULT:
            name = next((pattern for pattern in self._patterns if fnmatchcase(name, pattern)), name)
        return self.adapters.get(name)
