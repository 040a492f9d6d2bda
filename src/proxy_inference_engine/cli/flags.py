"""The argument parser: one flag for each field of Config that has one. Converts nothing, Config does."""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from proxy_inference_engine import __version__
from proxy_inference_engine.config.catalogue import SettingInfo, catalogue

_COMMANDS = {
    "serve": "answer OpenAI clients over HTTP",
    "chat": "talk with the model on this terminal",
    "run": "answer one question on this terminal",
    "pull": "download a model into the Hugging Face cache",
    "schema": "tell whether a JSON Schema can be enforced, and what it costs",
}
# What matters when nobody but this terminal is served.
_LOCAL_FLAGS = frozenset(
    {
        "model",
        "offline",
        "draft_model",
        "engine",
        "context",
        "format",
        "gpu_layers",
        "threads",
        "exact",
        "cache_dir",
        "log_level",
    }
)


_FLAGS: dict[str, frozenset[str] | None] = {
    "serve": None,  # all of them
    "pull": frozenset({"log_level"}),
    "schema": frozenset({"model", "engine", "format", "log_level"}),
}


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        print(f"pie: {message} (see `{self.prog} --help`)", file=sys.stderr)
        sys.exit(2)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command and the flags that were given, under the names of Config's fields. Exits with 2 when wrong."""
    return build_parser().parse_args(arguments)


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="pie", description="Proxy Inference Engine: a local inference server for language models.")
    parser.add_argument("-V", "--version", action="version", version=f"pie {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="|".join(_COMMANDS), parser_class=_Parser)
    for name, summary in _COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog="Every setting is also PIE_<NAME> in the environment or .env, and a key of pie.toml.",
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        if name == "run":
            command.add_argument("question", nargs="*", help="the question; - or nothing reads it from stdin")
        if name == "pull":
            command.add_argument("model", nargs="?", metavar="OWNER/MODEL", help="with :Q4_K_M for one file of several")
        if name == "schema":
            command.add_argument("schema", nargs="?", metavar="SCHEMA.json", help="the schema")
            command.add_argument("instances", nargs="*", metavar="INSTANCE.json", help="is it let through?")
            command.add_argument(
                "--bulk", metavar="FILE", help="many, one a line: {name, schema, tests: [{valid, data}]}"
            )
        _add_flags(command, _FLAGS.get(name, _LOCAL_FLAGS))
    return parser


def _add_flags(command: argparse.ArgumentParser, names: frozenset[str] | None) -> None:
    groups: dict[str, argparse._ArgumentGroup] = {}
    for info in catalogue():
        if info.flag and (names is None or info.name in names):
            if info.group not in groups:
                groups[info.group] = command.add_argument_group(info.group)
            _add_flag(groups[info.group], info.flag, info)
    groups["program"].add_argument(
        "--config", metavar="FILE", help="TOML file with settings (pie.toml if there is one)"
    )


def _add_flag(group: argparse._ArgumentGroup, flag: str, info: SettingInfo) -> None:
    text = info.description.replace("`", "").replace("%", "%%")
    if info.is_switch:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
    else:
        group.add_argument(flag, metavar=info.metavar, help=f"{text} ({info.default})" if info.default else text)
