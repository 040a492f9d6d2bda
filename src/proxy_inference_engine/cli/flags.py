"""The argument parser: each command's own words, and a flag for each setting that it has one for. Converts no setting,
Config does.
"""

import argparse
import sys
from collections.abc import Collection, Sequence
from typing import NoReturn

from proxy_inference_engine import __version__
from proxy_inference_engine.cli.commands import COMMANDS, SYNONYMS, Command, find, has_flag, is_setting
from proxy_inference_engine.cli.terminal import fitted
from proxy_inference_engine.config.catalogue import SettingInfo, catalogue
from proxy_inference_engine.errors import nearest

_EPILOG = "Every setting is also PIE_<NAME> in the environment or .env, and a key of pie.toml."


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        text = f"{message} (see `{self.prog} --help`)"
        print(f"pie: {fitted(text, 5, sys.stderr)}", file=sys.stderr)
        sys.exit(2)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command, and what was given after it, under the names of its parameters and of Config's fields.

    Exits with 2 when wrong.
    """
    parser = build_parser()
    if arguments and not arguments[0].startswith("-"):
        _check_command(parser, arguments[0])
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        _refuse(parser, options.command, unknown)
    return options


def _check_command(parser: _Parser, name: str) -> None:
    """Shorter than argparse's own words, which name every command, and with what was probably meant."""
    names = [command.name for command in COMMANDS] + list(SYNONYMS)
    if name in names:
        return
    parser.error(f"there is no command {name!r}{nearest(name, names)}")


def _refuse(parser: _Parser, name: str | None, unknown: Sequence[str]) -> NoReturn:
    """Says of the first word too many what was probably meant."""
    word = unknown[0].partition("=")[0]
    if name is None:
        parser.error(f"there is no flag {word}")
    parser.prog = f"pie {name}"  # whose help lists what there is
    if not word.startswith("-"):
        parser.error(f"`pie {name}` does not take {word!r}")
    parser.error(f"`pie {name}` has no flag {word}{_instead(find(name), word)}")


def _instead(command: Command, word: str) -> str:
    """Where that is said which has no flag after this command, or which flag is written much like it."""
    setting, own = word.lstrip("-").replace("-", "_"), {argument.name for argument in command.arguments}
    infos = [info for info in catalogue() if command.needs_config and is_setting(command, info.name)]
    if any(info.name == setting for info in infos):
        return f": set PIE_{setting.upper()}, or {setting} in pie.toml"
    if "--set" in own and setting in _options():
        return f": say --set {setting}=VALUE"
    flags = [*own, *(info.flag for info in infos if info.flag and has_flag(command, info.name))]
    return nearest(word, flags)


def _options() -> Collection[str]:
    from proxy_inference_engine.python.options import ChatOptions  # only somebody who typed wrong waits for it

    return ChatOptions.__annotations__


def build_parser() -> _Parser:
    parser = _Parser(
        prog="pie",
        description="Proxy Inference Engine: a local inference server for language models.",
        epilog="`pie` alone says what to do next.",
    )
    parser.add_argument("-V", "--version", action="version", version=f"pie {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=_Parser)
    for command in COMMANDS:
        synonyms = [other for other, name in SYNONYMS.items() if name == command.name]
        made = commands.add_parser(
            command.name,
            aliases=synonyms,
            help=command.summary,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            epilog=_EPILOG if command.needs_config else None,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        for argument in command.arguments:
            made.add_argument(argument.name, **argument.options)
        if command.needs_config:
            _add_settings(made, command)
    return parser


def _add_settings(made: argparse.ArgumentParser, command: Command) -> None:
    groups: dict[str, argparse._ArgumentGroup] = {}
    for info in catalogue():
        if info.flag and has_flag(command, info.name):
            if info.group not in groups:
                groups[info.group] = made.add_argument_group(info.group)
            _add_setting(groups[info.group], info.flag, info)
    groups["program"].add_argument(
        "--config", metavar="FILE", help="TOML file with settings (pie.toml if there is one)"
    )


def _add_setting(group: argparse._ArgumentGroup, flag: str, info: SettingInfo) -> None:
    text = info.description.replace("`", "").replace("%", "%%")
    if info.is_switch:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
    else:
        group.add_argument(flag, metavar=info.metavar, help=f"{text} ({info.default})" if info.default else text)
