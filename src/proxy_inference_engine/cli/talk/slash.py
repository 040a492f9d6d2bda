"""What may stand after a slash in a chat: each command with its words and what it does to the conversation."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from proxy_inference_engine.cli.talk.conversation import TerminalConversation
from proxy_inference_engine.cli.talk.inputs import read_format, read_image, read_setting
from proxy_inference_engine.cli.terminal import paint
from proxy_inference_engine.errors import StartupError, nearest
from proxy_inference_engine.python.options import ChatOptions

_OFF = "off"
RETRY, EXIT = "/retry", ("/exit", "/quit", "/bye")  # what only the loop that reads lines can do


@dataclass(frozen=True, slots=True)
class SlashCommand:
    words: str  # what may follow
    summary: str
    act: Callable[[TerminalConversation, str], str]  # what to print


def _model(conversation: TerminalConversation, name: str) -> str:
    partner = conversation.partner
    if not name:
        names = "\n".join(f"  {each}" for each in partner.names())
        return f"{partner.name}, {partner.place}. /model NAME takes another:\n{names}"
    partner.choose(name)
    return f"Now {partner.name}, {partner.place}. The conversation goes on."


def _system(conversation: TerminalConversation, text: str) -> str:
    if not text:
        return "No system prompt." if conversation.system is None else conversation.system
    conversation.system = None if text == _OFF else text
    return "No system prompt any more." if text == _OFF else "It holds from the next answer on."


def _schema(conversation: TerminalConversation, path: str) -> str:
    if path == _OFF:
        conversation.format = None
        return "Answers are free text."
    if not path:
        return "Answers are free text." if conversation.format is None else "Answers keep to a schema; /schema off."
    conversation.format = read_format(path)
    return f"Answers keep to {path}; /schema off ends that."


def _image(conversation: TerminalConversation, place: str) -> str:
    if not place:
        raise StartupError("which image? /image FILE")
    conversation.images.append(read_image(place))
    number = len(conversation.images)
    return f"{'It goes' if number == 1 else f'{number} images go'} with the next question."


def _set(conversation: TerminalConversation, words: str) -> str:
    if not words:
        held = "\n".join(f"  {name} = {value!r}" for name, value in conversation.settings.items())
        return held or "Nothing is set: the model's own values hold. /set temperature 0.5 sets one."
    name, _, text = words.replace("=", " ", 1).partition(" ")
    key, value = read_setting(name, text.strip())
    if text.strip() in ("", _OFF):
        conversation.settings.pop(key, None)
        return f"{key} is the model's own again."
    from proxy_inference_engine.python.local_model import check_options  # knows the API, which takes long to import

    check_options({**conversation.settings, key: value})
    conversation.settings[key] = value
    return f"{key} = {value!r}"


def _save(conversation: TerminalConversation, path: str) -> str:
    if not path:
        raise StartupError("into which file? /save FILE")
    conversation.save(Path(path).expanduser())
    return f"Saved in {path}; /load {path} takes it up again."


def _load(conversation: TerminalConversation, path: str) -> str:
    if not path:
        raise StartupError("from which file? /load FILE")
    conversation.load(Path(path).expanduser())
    return f"{len(conversation.messages)} messages. The conversation goes on from there."


def _clear(conversation: TerminalConversation, _: str) -> str:
    conversation.clear()
    return "Forgotten."


def _stats(conversation: TerminalConversation, _: str) -> str:
    if conversation.last is None:
        return "No answer yet."
    counts = conversation.last.counts
    context = conversation.partner.context_tokens
    used = counts.num_prompt_tokens + counts.num_tokens
    return "\n".join(
        (
            f"  prompt   {counts.num_prompt_tokens} tokens, {counts.num_cached_tokens} of them known, "
            f"{counts.prompt_ms:.0f} ms",
            f"  answer   {counts.num_tokens} tokens, {counts.tokens_per_second:.1f} a second"
            + (f", {counts.num_reasoning_tokens} of them thoughts" if counts.num_reasoning_tokens else ""),
            f"  context  {used:,}" + (f" of {context:,} tokens" if context else " tokens"),
        )
    )


def _help(_conversation: TerminalConversation, _: str) -> str:
    rows = [(f"{name} {command.words}".rstrip(), command.summary) for name, command in SLASH_COMMANDS.items()]
    rows += [(RETRY, "another answer to the last question"), (EXIT[0], "leaves, and so does Ctrl-D")]
    width = max(len(name) for name, _ in rows)
    listed = "\n".join(f"  {paint(f'{name:<{width}}', 'bold')}  {summary}" for name, summary in rows)
    return f'{listed}\n  Ctrl-C stops an answer. Several lines: Alt-Enter, \\ at the end, or """ around.'


SLASH_COMMANDS = {
    "/help": SlashCommand("", "this list", _help),
    "/model": SlashCommand("[NAME]", "lists the models, or takes another", _model),
    "/system": SlashCommand("[TEXT|off]", "what the model is told before all else", _system),
    "/schema": SlashCommand("[FILE|off]", "answers keep to a JSON Schema", _schema),
    "/image": SlashCommand("FILE", "goes with the next question; an address will do", _image),
    "/set": SlashCommand("[NAME VALUE]", "a field of chat completions: temperature, seed …", _set),
    "/save": SlashCommand("FILE", "writes the conversation to a new file", _save),
    "/load": SlashCommand("FILE", "takes up one that was saved", _load),
    "/stats": SlashCommand("", "tokens and times of the last answer", _stats),
    "/clear": SlashCommand("", "forgets the conversation", _clear),
}


def act(conversation: TerminalConversation, line: str) -> str:
    """Do what a line that begins with a slash says; what to print. Raises PieError and OSError."""
    word, _, rest = line.partition(" ")
    command = SLASH_COMMANDS.get(word)
    if command is None:
        meant = nearest(word, (*SLASH_COMMANDS, RETRY, *EXIT))
        raise StartupError(f"{word} is no command here{meant or '; /help lists them'}")
    return command.act(conversation, rest.strip())


def completions(conversation: TerminalConversation, line: str) -> list[str]:
    """Lines that this one may become."""
    word, space, rest = line.partition(" ")
    if not line.startswith("/"):
        return []
    if not space:
        return [f"{name} " for name in (*SLASH_COMMANDS, RETRY, EXIT[0]) if name.startswith(word)]
    match word:
        case "/model":
            return [f"{word} {name}" for name in conversation.partner.names() if name.startswith(rest)]
        case "/set":
            return [f"{word} {name} " for name in ChatOptions.__annotations__ if name.startswith(rest)]
        case "/schema" | "/image" | "/load" | "/save":
            return [f"{word} {path}" for path in _paths(rest)]
    return []


def _paths(start: str) -> list[str]:
    folder, slash, beginning = start.rpartition("/")
    base = Path(folder + slash or ".").expanduser()
    try:
        found = sorted(path for path in base.iterdir() if path.name.startswith(beginning))
    except OSError:
        return []
    return [f"{folder}{slash}{path.name}{'/' if path.is_dir() else ''}" for path in found]
