"""The settings described in plain words, for `--help` and docs/configuration.md. Derived from Config's fields."""

import textwrap
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import get_args

from pydantic.fields import FieldInfo

from proxy_inference_engine.config.fields import Config
from proxy_inference_engine.config.shown import SettingGroup, place
from proxy_inference_engine.config.sources import PREFIX

_WIDTH = 120  # of the lines in the documentation
# As they are for most: where they really are depends on who asks.
_FOLDERS = {"cache_dir": "~/.cache/proxy-inference-engine", "data_dir": "~/.local/share/proxy-inference-engine"}


@dataclass(frozen=True, slots=True)
class SettingInfo:
    name: str
    group: SettingGroup
    flag: str | None
    variable: str
    metavar: str
    default: str | None  # None: unset
    description: str
    is_switch: bool


def catalogue() -> list[SettingInfo]:
    """Every setting, in the order of the fields."""
    return [_describe(name, field) for name, field in Config.model_fields.items()]


def settings_list() -> str:
    """The settings by group, in Markdown. A list: the rows of a table cannot be wrapped."""
    lines = []
    for group, infos in groupby(catalogue(), key=attrgetter("group")):
        lines += [f"### {group.capitalize()}", "", *(line for info in infos for line in _item(info)), ""]
    return "\n".join(lines).rstrip()


def _item(info: SettingInfo) -> list[str]:
    names = [f"`{name}`" for name in (info.flag, info.variable) if name]
    default = [f"default `{info.default}`"] if info.default else []
    text = f"- **`{info.name}`** ({', '.join(names + default)}): {info.description}"
    return textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _describe(name: str, field: FieldInfo) -> SettingInfo:
    where = place(field)
    return SettingInfo(
        name=name,
        group=where.group,
        flag=f"--{name.replace('_', '-')}" if where.is_flag else None,
        variable=PREFIX + name.upper(),
        metavar="|".join(_words(field)) or where.metavar,
        default=_default(name, field),
        description=field.description or "",
        is_switch=field.annotation is bool,
    )


def _words(field: FieldInfo) -> list[str]:
    """The words a field takes, when it takes only some."""
    found = (word for part in (field.annotation, *get_args(field.annotation)) for word in get_args(part))
    return [word for word in found if isinstance(word, str)]


def _default(name: str, field: FieldInfo) -> str | None:
    if field.default_factory is not None:
        return _FOLDERS[name]
    match field.default:
        case None | ():
            return None
        case bool():
            return str(field.default).lower()
        case float() if field.default.is_integer():
            return f"{field.default:.0f}"
        case _:
            return str(field.default)
