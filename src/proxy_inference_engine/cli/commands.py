"""Every command of `pie`: what it is for, what may stand after it, and where it is. The parser, the dispatch and the
shell's completion are made from this table; nothing is imported before it runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Completes = Literal["file", "model", "nothing"]  # what a shell offers for a value


@dataclass(frozen=True, slots=True)
class Argument:
    """A word after a command, or a flag of its own; `options` are argparse's."""

    name: str
    options: Mapping[str, Any]
    completes: Completes = "nothing"

    @property
    def is_flag(self) -> bool:
        return self.name.startswith("-")

    @property
    def key(self) -> str:
        """The parameter of the command's function."""
        return str(self.options.get("dest", self.name.lstrip("-").replace("-", "_")))


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    summary: str
    module: str  # in this folder; the function in it has the command's name, or `function`
    arguments: tuple[Argument, ...] = ()
    flags: frozenset[str] | None = field(default=frozenset())  # settings that have one here; None: all
    function: str = ""
    needs_config: bool = True


def _word(name: str, text: str, completes: Completes = "nothing", **options: Any) -> Argument:
    return Argument(name, {"help": text, **options}, completes)


def _switch(name: str, text: str, **options: Any) -> Argument:
    return Argument(name, {"help": text, "action": "store_true", **options})


_JSON = _switch("--json", "for a program to read", dest="as_json")
_SCHEMA = _word("--schema", "a JSON Schema: the answer keeps to it", "file", metavar="FILE")
_SYSTEM = _word("--system", "what the model is told before the conversation", metavar="TEXT")
_SET = _word(
    "--set", "a field of chat completions: --set temperature=0", metavar="NAME=VALUE", dest="settings", action="append"
)
_IMAGE = _word("--image", "a file or an address; several times for several", "file", dest="images", action="append")
_LOGGED = frozenset({"log_level"})
_CLIENT = frozenset({"server", "log_level"})
# What matters when nobody but this terminal is served.
_LOCAL = frozenset(
    {
        "model",
        "offline",
        "draft_model",
        "engine",
        "url",
        "context",
        "format",
        "gpu_layers",
        "threads",
        "exact",
        "server",
        "cache_dir",
        "log_level",
    }
)

COMMANDS = (
    Command("serve", "answer OpenAI clients over HTTP", "serve", flags=None),
    Command("chat", "talk with the model on this terminal", "talk.chat", (_SCHEMA, _SYSTEM, _SET), _LOCAL),
    Command(
        "run",
        "answer one question on this terminal",
        "talk.run",
        (
            _word("question", "the question; - stands for what stdin has, and so does nothing", nargs="*"),
            _SCHEMA,
            _SYSTEM,
            _IMAGE,
            _SET,
            _JSON,
        ),
        _LOCAL,
    ),
    Command("models", "list the models that are here", "shelf.models", (_JSON,), _CLIENT),
    Command(
        "show",
        "what is known of a model",
        "shelf.show",
        (_word("model", "a name or a path", "model", nargs="?"), _JSON),
        frozenset({"context", "format", "log_level"}),
    ),
    Command(
        "fit",
        "whether a model fits, before it is downloaded",
        "shelf.fit",
        (_word("model", "owner/model, or one that is here", "model", nargs="?"), _JSON),
        frozenset({"context", "slots", "exact", "offline", "log_level"}),
    ),
    Command(
        "pull",
        "download a model",
        "shelf.pull",
        (_word("model", "with :Q4_K_M for one file of several", metavar="OWNER/MODEL", nargs="?"),),
        _LOGGED,
    ),
    Command(
        "rm",
        "delete a model that was downloaded",
        "shelf.rm",
        (_word("model", "as `pie models` lists it", "model"), _switch("--yes", "do not ask", dest="is_sure")),
        _CLIENT,
    ),
    Command("ps", "what the running server has loaded and answers", "remote.ps", (_JSON,), _CLIENT),
    Command(
        "stop",
        "end the running server, or unload one of its models",
        "remote.stop",
        (
            _word("model", "as `pie ps` lists it; without one the server ends", "model", nargs="?"),
            _switch("--yes", "do not ask, though it is answering", dest="is_sure"),
        ),
        _CLIENT,
    ),
    Command(
        "bench",
        "measure the running server",
        "bench.bench",
        (
            _word("--model", "one of the server's", "model", metavar="NAME", dest="model_name"),
            _word("--clients", "how many at a time, several between commas (1,2,4,8)", metavar="N,N"),
            _word("--tokens", "of each answer (64)", metavar="N", type=int),
            _word("--prompt-tokens", "of each prompt, about (256)", metavar="N", type=int),
            _word("--svg", "write the plot there (pie-bench.svg)", "file", metavar="FILE"),
            _JSON,
        ),
        _CLIENT,
    ),
    Command("doctor", "look at this machine, and say what to do next", "doctor", (_JSON,), _CLIENT | {"model"}),
    Command(
        "launch",
        "settings for Claude Code, Codex or opencode",
        "launch",
        (
            _word("client", "which one", choices=("claude", "codex", "opencode")),
            _word("--model", "one of the server's", "model", metavar="NAME", dest="model_name"),
            _switch("--write", "write the file, if it is not there", dest="is_written"),
            _switch("--force", "with --write: put it in place of a file that is there", dest="is_forced"),
            _JSON,
        ),
        _CLIENT,
    ),
    Command(
        "key",
        "make an API key and its line for the key file",
        "key",
        (
            _word("name", "whose key it is: the name in logs, limits and usage", metavar="NAME"),
            _switch("--admin", "it opens the admin routes too", dest="is_admin"),
        ),
        needs_config=False,  # which may name a key file that is yet to be made
    ),
    Command(
        "schema",
        "whether a JSON Schema can be enforced",
        "schema",
        (
            _word("path", "the schema", "file", nargs="?", metavar="SCHEMA.json"),
            _word("instances", "is it let through?", "file", nargs="*", metavar="INSTANCE.json"),
            _word("--bulk", "many, one a line: {name, schema, tests: [{valid, data}]}", "file", metavar="FILE"),
        ),
        frozenset({"model", "engine", "format", "log_level"}),
    ),
    Command(
        "optimize",
        "compile llama.cpp for this processor",
        "optimize",
        (),
        frozenset({"model", "threads", "cache_dir", "log_level"}),
    ),
    Command(
        "completion",
        "a script for the shell: Tab completes these words",
        "completion",
        (_word("shell", "which one", choices=("bash", "zsh", "fish")),),
        needs_config=False,
    ),
)
SYNONYMS = {"ls": "models"}  # what people type who come from other programs
_ONLY_ELSEWHERE = frozenset({"server"})  # a setting of clients, which `pie serve` is not


def find(name: str) -> Command:
    return next(command for command in COMMANDS if command.name == SYNONYMS.get(name, name))


def is_setting(command: Command, setting: str) -> bool:
    """Whether it means something to this command, with a flag or without."""
    return command.flags is not None or setting not in _ONLY_ELSEWHERE


def has_flag(command: Command, setting: str) -> bool:
    """Whether a setting has a flag after this command."""
    if command.flags is None:
        return is_setting(command, setting)
    return setting in command.flags and setting not in {argument.key for argument in command.arguments}
