"""How much a key may use in a minute or a day: one default for all, and what differs for some."""

import json
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from proxy_inference_engine.config.keys import check_key_name

_Count = Annotated[int, Field(ge=0, le=1 << 50)] | None


class KeyLimits(BaseModel, frozen=True, extra="forbid", strict=True):
    """None: what holds for all; 0: no limit."""

    requests_per_minute: _Count = None
    tokens_per_minute: _Count = None
    requests_per_day: _Count = None
    tokens_per_day: _Count = None

    @property
    def are_none(self) -> bool:
        return not any(self.model_dump().values())


class LimitTable(BaseModel, frozen=True, extra="forbid"):
    """The table `[limits]`, whose own tables are the names of keys."""

    common: KeyLimits
    by_name: dict[str, KeyLimits] = {}

    def of(self, name: str) -> KeyLimits:
        """What a key's own table says, and for the rest what holds for all."""
        own = self.by_name.get(name, KeyLimits())
        return self.common.model_copy(update=own.model_dump(exclude_none=True))


def parse_limits(value: object) -> object:
    """A table of numbers, and of tables by the names of keys; or the same as JSON."""
    if value is None or isinstance(value, LimitTable):
        return value
    try:
        table = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("should be a JSON object") from None
    if not isinstance(table, dict):
        raise ValueError("should be a table of limits")
    names = {name: own for name, own in table.items() if isinstance(own, dict)}
    common = {name: limit for name, limit in table.items() if name not in names}
    return LimitTable(common=_limits(common, ""), by_name={name: _of_name(name, own) for name, own in names.items()})


def _of_name(name: str, table: dict[str, object]) -> KeyLimits:
    try:
        check_key_name(name)
    except ValueError as error:
        raise ValueError(f"{name[:64]!r}: {error}") from None
    return _limits(table, f"{name}.")


def _limits(table: dict[str, object], where: str) -> KeyLimits:
    try:
        return KeyLimits.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}{name}: {first['msg']}") from None
