"""Where a setting stands in `--help` and in the documentation."""

from typing import Literal, NamedTuple

from pydantic.fields import FieldInfo

SettingGroup = Literal["server", "model", "pool", "engine", "memory", "client", "program"]


class Shown(NamedTuple):
    """The place of one field, in the field's own annotation."""

    group: SettingGroup
    metavar: str = "N"
    is_flag: bool = True
    is_secret: bool = False


def place(field: FieldInfo) -> Shown:
    return next(item for item in field.metadata if isinstance(item, Shown))
