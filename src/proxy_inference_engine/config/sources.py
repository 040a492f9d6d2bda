"""Where settings come from, strongest first: flags, environment, `.env`, TOML. Knows no setting by name but the keys.

Every value keeps the name its author gave it (`--port`, `PIE_PORT`, `port in pie.toml`), for the error message.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from proxy_inference_engine.config.fields import Config
from proxy_inference_engine.config.keys import all_keys
from proxy_inference_engine.config.models import is_of_model
from proxy_inference_engine.config.shown import place
from proxy_inference_engine.errors import StartupError, nearest

PREFIX = "PIE_"
DOTENV = ".env"
TOML = "pie.toml"
CONFIG_VARIABLE = "PIE_CONFIG"  # the TOML file, as --config
# Not settings: PIE_CONFIG says where they are, PIE_SCHEMA_SAMPLE belongs to the tests.
_NOT_SETTINGS = frozenset({CONFIG_VARIABLE, "PIE_SCHEMA_SAMPLE"})
_NEVER_EMPTY = frozenset({"api_keys", "api_key_file", "metrics_key"})
_ASSIGNMENT = re.compile(r"(?:export\s+)?(\w+)\s*=\s*(.*)")


class Setting(NamedTuple):
    value: object
    source: str  # how its author wrote it


def load_config(
    flags: Mapping[str, object], environ: Mapping[str, str] | None = None, folder: Path | None = None
) -> Config:
    """The Config from every source. `flags` has field names, and `config` for a TOML file.

    Raises StartupError that names the key and the source.
    """
    environ = os.environ if environ is None else environ
    folder = Path() if folder is None else folder
    dotenv = _read_dotenv(folder / DOTENV)
    toml = flags.get("config") or environ.get(CONFIG_VARIABLE) or dotenv.get(CONFIG_VARIABLE)
    settings = _from_toml(folder, toml)
    settings |= _from_variables(dotenv, f" in {DOTENV}")
    settings |= _from_variables(environ, "")
    for name, value in flags.items():
        if name != "config":
            settings[name] = Setting(value, f"--{name.replace('_', '-')}")
    config = _validated(settings)
    _check_models(config, settings)
    return _with_key_file(config)


def _check_models(config: Config, settings: Mapping[str, Setting]) -> None:
    """Each model's own settings, now and not when somebody asks for it."""
    allowed = {name: field for name, field in Config.model_fields.items() if is_of_model(name, place(field).group)}
    for name, table in (config.models or {}).items():
        where = f"[models.{name}], {settings['models'].source.removeprefix('models ')}"
        for key in table.settings:
            if key not in allowed:
                raise StartupError(f"{where}: unknown key {key!r}{nearest(key, allowed)}")
        try:
            table.config(config)
        except ValidationError as error:
            first = error.errors()[0]
            raise StartupError(f"{where}: {first['loc'][0]} {_reason(first['msg'])}") from None


def _reason(message: str) -> str:
    return message.removeprefix("Value error, ").replace("Input should", "should")


def _from_toml(folder: Path, given: object) -> dict[str, Setting]:
    path = folder / Path(str(given or TOML)).expanduser()
    if not given and not path.exists():
        return {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StartupError(f"config file {str(path)!r}: {reason}") from None
    for name in values:
        if name not in Config.model_fields:
            raise StartupError(f"config file {str(path)!r}: unknown key {name!r}{nearest(name, Config.model_fields)}")
    return {name: Setting(value, f"{name} in {str(path)!r}") for name, value in values.items()}


def _from_variables(variables: Mapping[str, str], where: str) -> dict[str, Setting]:
    names = {PREFIX + name.upper(): name for name in Config.model_fields}
    settings = {}
    for variable, value in variables.items():
        if not variable.startswith(PREFIX) or variable in _NOT_SETTINGS:
            continue
        if variable not in names:
            raise StartupError(f"unknown variable {variable}{where}{nearest(variable, names)}")
        # An empty variable is no answer, except where silence would leave the server open.
        if value.strip() or names[variable] in _NEVER_EMPTY:
            settings[names[variable]] = Setting(value.strip(), variable + where)
    return settings


def _read_dotenv(path: Path) -> dict[str, str]:
    """`NAME=value` lines: `export`, quotes and `#` comments as usual, nothing is expanded. Only PIE_* names matter."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise StartupError(f"{str(path)!r}: {reason}") from None
    variables = {}
    for number, line in enumerate(lines, start=1):
        match = _ASSIGNMENT.fullmatch(line.strip())
        if match is not None:
            variables[match[1]] = _unquote(match[2])
        elif line.removeprefix("export").lstrip().startswith(PREFIX):
            raise StartupError(f"{str(path)!r}, line {number}: expected PIE_NAME=value")
    return variables


def _unquote(text: str) -> str:
    quoted = re.fullmatch(r"""(["'])(.*?)\1\s*(?:#.*)?""", text)
    if quoted:
        return quoted[2]
    return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].strip()


def _validated(settings: Mapping[str, Setting]) -> Config:
    try:
        return Config(**{name: setting.value for name, setting in settings.items()})  # type: ignore[arg-type]  # validated
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        reason = _reason(first["msg"])
        got = "" if place(Config.model_fields[name]).is_secret else f", not {settings[name].value!r}"
        raise StartupError(f"{settings[name].source}: {reason}{got}") from None


def _with_key_file(config: Config) -> Config:
    if config.api_key_file is None:
        return config
    return config.model_copy(update={"api_keys": all_keys(config.api_key_file, config.api_keys)})
