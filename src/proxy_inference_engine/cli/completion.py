"""`pie completion bash|zsh|fish`: a script for the shell, made from the table of commands."""

from collections.abc import Iterator
from typing import NamedTuple

from proxy_inference_engine.cli.commands import COMMANDS, SYNONYMS, Argument, Command, Completes, has_flag
from proxy_inference_engine.config.catalogue import SettingInfo, catalogue

_FILES = ("FILE", "FOLDER", "FOLDERS")
# Asks the program itself, so that models which came later are known.
_MODELS = (
    'pie models --json --server none 2>/dev/null | sed \'s/{"name": /\\n/g\' | sed -n \'s/^"\\([^"]*\\)".*/\\1/p\''
)


class FlagWord(NamedTuple):
    """A flag as a shell has to know it."""

    name: str
    summary: str
    takes_value: bool
    completes: Completes
    choices: tuple[str, ...] = ()


def completion(*, shell: str) -> int:
    makers = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    print("\n".join(makers[shell]()))
    return 0


def flags_of(command: Command) -> list[FlagWord]:
    own = [_own_flag(argument) for argument in command.arguments if argument.is_flag]
    if not command.needs_config:
        return [*own, FlagWord("--help", "what may follow", False, "nothing")]
    settings = [_setting_flag(info) for info in catalogue() if info.flag and has_flag(command, info.name)]
    further = [FlagWord("--config", "TOML file with settings", True, "file")]
    return [*own, *settings, *further, FlagWord("--help", "what may follow", False, "nothing")]


def _own_flag(argument: Argument) -> FlagWord:
    options = argument.options
    takes_value = options.get("action") != "store_true"
    return FlagWord(argument.name, str(options["help"]), takes_value, argument.completes)


def _setting_flag(info: SettingInfo) -> FlagWord:
    assert info.flag is not None
    summary = info.description.replace("`", "").partition(";")[0].partition(". ")[0]
    choices = tuple(info.metavar.split("|")) if "|" in info.metavar else ()
    kind: Completes = "model" if info.name == "model" else "file" if info.metavar in _FILES else "nothing"
    return FlagWord(info.flag, summary, not info.is_switch, kind, choices)


def _words_of(command: Command) -> tuple[Completes, tuple[str, ...]]:
    """What may stand after a command without a flag: what a shell offers, and words to choose from."""
    for argument in command.arguments:
        if not argument.is_flag:
            return argument.completes, tuple(argument.options.get("choices", ()))
    return "nothing", ()


def _names() -> Iterator[tuple[str, Command]]:
    by_name = {command.name: command for command in COMMANDS}
    yield from by_name.items()
    yield from ((other, by_name[name]) for other, name in SYNONYMS.items())


def _bash() -> Iterator[str]:
    yield "# bash completion for pie: source <(pie completion bash)"
    yield f"_pie_models() {{ {_MODELS}; }}"
    yield "_pie() {"
    yield '    local word="${COMP_WORDS[COMP_CWORD]}" last="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[1]}"'
    yield "    COMPREPLY=()"
    names = " ".join((*(name for name, _ in _names()), "--help", "--version"))
    yield f'    if ((COMP_CWORD == 1)); then COMPREPLY=($(compgen -W "{names}" -- "$word")); return; fi'
    yield '    case "$command $last" in'
    for name, command in _names():
        for flag in flags_of(command):
            if flag.takes_value:
                yield f'        "{name} {flag.name}") {_bash_value(flag.completes, flag.choices)}; return ;;'
    yield "    esac"
    yield '    case "$command" in'
    for name, command in _names():
        flags = " ".join(flag.name for flag in flags_of(command))
        value = _bash_value(*_words_of(command))
        yield f'        {name}) if [[ "$word" == -* ]]; then COMPREPLY=($(compgen -W "{flags}" -- "$word"))'
        yield f"            else {value}; fi ;;"
    yield "    esac"
    yield "}"
    yield "complete -F _pie pie"


def _bash_value(completes: Completes, choices: tuple[str, ...]) -> str:
    if choices:
        return f'COMPREPLY=($(compgen -W "{" ".join(choices)}" -- "$word"))'
    match completes:
        case "file":
            return 'COMPREPLY=($(compgen -f -- "$word")); compopt -o filenames 2>/dev/null'
        case "model":
            return 'COMPREPLY=($(compgen -W "$(_pie_models)" -- "$word") $(compgen -f -- "$word"))'
        case _:
            return ":"


def _zsh() -> Iterator[str]:
    yield "#compdef pie"
    yield "# zsh completion for pie: source <(pie completion zsh), after compinit"
    yield f'_pie_models() {{ local -a names; names=(${{(f)"$({_MODELS})"}}); compadd -a names; _files }}'
    yield "_pie() {"
    yield "    local -a commands=("
    for name, command in _names():
        yield f"        {_zsh_quoted(f'{name}:{command.summary}')}"
    yield "    )"
    yield "    if ((CURRENT == 2)); then _describe command commands; return; fi"
    yield '    local command="$words[2]"'
    yield "    shift words; ((CURRENT--))"
    yield '    case "$command" in'
    for name, command in _names():
        yield f"        {name}) _arguments \\"
        for flag in flags_of(command):
            value = f":value:{_zsh_value(flag.completes, flag.choices)}" if flag.takes_value else ""
            yield f"            {_zsh_quoted(f'{flag.name}[{_zsh_text(flag.summary)}]{value}')} \\"
        yield f"            {_zsh_quoted('*:argument:' + _zsh_value(*_words_of(command)))} ;;"
    yield "    esac"
    yield "}"
    yield "compdef _pie pie"


def _zsh_value(completes: Completes, choices: tuple[str, ...]) -> str:
    if choices:
        return f"({' '.join(choices)})"
    return {"file": "_files", "model": "_pie_models", "nothing": " "}[completes]


def _zsh_text(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "[]:" else letter for letter in text)


def _zsh_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish() -> Iterator[str]:
    yield "# fish completion for pie: pie completion fish | source"
    yield f"function __pie_models; {_MODELS}; end"
    yield "complete -c pie -f"
    for name, command in _names():
        yield f"complete -c pie -n __fish_use_subcommand -a {name} -d {_fish_quoted(command.summary)}"
    for name, command in _names():
        here = f"complete -c pie -n '__fish_seen_subcommand_from {name}'"
        completes, choices = _words_of(command)
        if choices or completes != "nothing":
            yield f"{here}{_fish_value(completes, choices)}"
        for flag in flags_of(command):
            value = f" -r{_fish_value(flag.completes, flag.choices)}" if flag.takes_value else ""
            yield f"{here} -l {flag.name.removeprefix('--')}{value} -d {_fish_quoted(flag.summary)}"


def _fish_value(completes: Completes, choices: tuple[str, ...]) -> str:
    if choices:
        return f" -a {_fish_quoted(' '.join(choices))}"
    return {"file": " -F", "model": " -a '(__pie_models)' -F", "nothing": ""}[completes]


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
