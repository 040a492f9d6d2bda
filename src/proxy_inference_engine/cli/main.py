"""`pie serve|chat|run|pull|schema|--version`: reads the arguments and hands a Config to the command.

The commands and what they need are imported when they run, so that `pie --version` is instant.
"""

import contextlib
import os
import sys
import threading
from argparse import Namespace
from collections.abc import Sequence

from proxy_inference_engine import __version__
from proxy_inference_engine.errors import PieError

INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 1 after an error that was printed, or 2 for wrong usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments in (["--version"], ["-V"]):
            print(f"pie {__version__}", flush=True)
            return 0
        from proxy_inference_engine.cli.flags import parse

        return _run(parse(arguments))
    except PieError as error:
        return _complain(error.message)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return _complain(f"{error.strerror or error}{where}")
    except UnicodeError:
        return _complain("the input is not UTF-8 text")
    except KeyboardInterrupt:
        print(file=sys.stderr)
        _leave_now()
        return INTERRUPTED


def _run(options: Namespace) -> int:
    from proxy_inference_engine import log
    from proxy_inference_engine.config import load_config

    values = dict(vars(options))
    command = values.pop("command")
    words = values.pop("question", [])
    path, instances, bulk = values.pop("schema", None), values.pop("instances", []), values.pop("bulk", None)
    log.configure("warning")
    config = load_config(values)
    if command == "serve" or "log_level" in config.model_fields_set:
        log.configure(config.log_level)
    match command:
        case "serve":
            from proxy_inference_engine.cli.serve import serve

            return serve(config)
        case "chat":
            from proxy_inference_engine.cli.chat import chat

            return chat(config)
        case "pull":
            from proxy_inference_engine.cli.pull import pull

            return pull(config)
        case "schema":
            from proxy_inference_engine.cli.schema import schema

            return schema(config, path, instances, bulk)
        case _:
            from proxy_inference_engine.cli.run import run

            return run(config, " ".join(words))


def _leave_now() -> None:
    """Where a model is still being loaded: the library crashes when the program ends under a thread that computes."""
    if any(thread.name == "engine" for thread in threading.enumerate()):
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or never there
                stream.flush()
        os._exit(INTERRUPTED)


def _complain(message: str) -> int:
    print(f"pie: {' '.join(message.split())}", file=sys.stderr)
    return 1
