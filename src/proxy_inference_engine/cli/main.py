"""`pie COMMAND …`: reads the arguments and calls the command with a Config and what was given after it.

The commands and what they need are imported when they run, so that `pie --version` is instant.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from proxy_inference_engine import __version__
from proxy_inference_engine.cli.exit import INTERRUPTED, interrupted_imports, leave
from proxy_inference_engine.errors import PieError

if TYPE_CHECKING:  # `pie --version` does not wait for pydantic
    from proxy_inference_engine.config import Config


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 1 after an error that was printed, or 2 for wrong usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return complaining(lambda: _main(arguments))


def _main(arguments: list[str]) -> int:
    if arguments in (["--version"], ["-V"]):
        print(f"pie {__version__}", flush=True)
        return 0
    from proxy_inference_engine.cli.flags import parse

    return _run(parse(arguments))


def complaining(work: Callable[[], int]) -> int:
    """What goes wrong is a line, not a traceback."""
    try:
        with interrupted_imports():
            return work()
    except PieError as error:
        return _complain(error.message)
    except BrokenPipeError:
        # Whoever read us has enough. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return _complain(f"{error.strerror or error}{where}")
    except UnicodeError:
        return _complain("the input is not UTF-8 text")
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return leave(INTERRUPTED)


def _run(options: Namespace) -> int:
    from proxy_inference_engine.cli.commands import find

    given = dict(vars(options))
    name = given.pop("command")
    if name is None:
        return _configured(_function("next_steps", "next_steps"), {}, {}, is_server=False)
    command = find(name)
    keys = {argument.key for argument in command.arguments}
    own = {key: value for key, value in given.items() if key in keys}
    function = _function(command.module, command.function or command.name)
    if not command.needs_config:
        return int(function(**own))
    settings = {key: value for key, value in given.items() if key not in keys}
    return _configured(function, settings, own, is_server=command.name == "serve")


def _function(module: str, name: str) -> Callable[..., int]:
    function: Callable[..., int] = getattr(import_module(f"proxy_inference_engine.cli.{module}"), name)
    return function


def _configured(function: Callable[..., int], settings: dict[str, Any], own: dict[str, Any], *, is_server: bool) -> int:
    from proxy_inference_engine import log
    from proxy_inference_engine.config import load_config

    log.configure("warning")
    config = load_config(settings)
    if is_server:
        own = {**own, "read": partial(load_config, settings)}  # it reads its configuration again when it is asked to
    if is_server or "log_level" in config.model_fields_set:
        log.configure(config.log_level)
    from proxy_inference_engine.models.resolve import NoModel

    try:
        return function(config, **own)
    except NoModel:
        return _without_model(function, config, own)


def _without_model(function: Callable[..., int], config: "Config", own: dict[str, Any]) -> int:
    """Says which models there are; a person at a terminal may have the smallest at once."""
    from proxy_inference_engine.cli.choices import no_model
    from proxy_inference_engine.cli.progress import ProgressLine
    from proxy_inference_engine.cli.terminal import agrees, is_terminal
    from proxy_inference_engine.models.download.model import obtain
    from proxy_inference_engine.models.resolve import BUNDLED_WORD

    print(no_model(config), file=sys.stderr)
    is_asked = is_terminal(sys.stdin) and is_terminal(sys.stdout) and not config.offline
    if not is_asked or not agrees("\nDownload the 89 MiB for trying out, and go on with it?"):
        return 1
    with ProgressLine() as line:
        obtain(config.model_copy(update={"model": BUNDLED_WORD}), line)
    return function(config, **own)


def _complain(message: str) -> int:
    from proxy_inference_engine.cli.terminal import fitted

    print(f"pie: {fitted(' '.join(message.split()), 5, sys.stderr)}", file=sys.stderr)
    return 1
