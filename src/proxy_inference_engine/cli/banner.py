"""What `pie serve` says once it is ready: where it is, what to try, and what would be better."""

import json
import shlex
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from proxy_inference_engine.config.sizes import format_size
from proxy_inference_engine.runners.base import Lane

_WIDTH = 80  # of the narrowest terminal that people have
_BOLD, _NORMAL = "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Banner:
    """The facts a user wants after the start."""

    model: str
    description: str
    context_tokens: int
    lanes: tuple[Lane, ...]  # none: what computes is elsewhere
    kv_bytes_per_token: int
    cache_bytes: int
    url: str
    has_keys: bool
    library: str = ""  # what computes, where there is a choice
    is_small: bool = False  # the bundled model: good to begin with, and no more
    faster: tuple[str, ...] = ()  # a line each
    larger: tuple[str, ...] = ()  # models that would fit: a title, then a line each
    others: tuple[str, ...] = ()  # models that are loaded when asked for: the same

    def render(self, *, is_terminal: bool = False) -> str:
        bold = (lambda text: f"{_BOLD}{text}{_NORMAL}") if is_terminal else str
        lines = ["", *ready(self.url, has_keys=self.has_keys, bold=bold), ""]
        for name, value in self._facts():
            lines += _wrap(value, f"  {name:<9}", " " * 11)
        lines += ["", bold("Try it, in another terminal"), *self._curl(), "", *self._python()]
        for section in (self.others, self.larger):
            if section:
                lines += ["", bold(section[0]), *section[1:]]
        if self.faster:
            lines += ["", bold("Faster"), *(part for line in self.faster for part in _advice(line))]
        return "\n".join((*lines, "", "Ctrl-C stops the server."))

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "model", self.model + (f" ({self.description})" if self.description else "")
        if self.is_small:
            yield "", "135M parameters: good for trying out, too small for real work"
        if self.library:
            yield "library", self.library
        yield "context", f"{self.context_tokens:,} tokens"
        if self.lanes:
            yield "slots", self._slots()
            yield "memory", self._memory()

    def _slots(self) -> str:
        """The wide lane, then how many longer sequences beside it."""
        wide, *long = self.lanes
        text = f"{wide.num_slots} sequences of {wide.slot_tokens:,} tokens at a time"
        return f"{text}, {len(long)} longer ones on demand" if long else text

    def _memory(self) -> str:
        kv_bytes = sum(lane.num_slots * lane.slot_tokens for lane in self.lanes) * self.kv_bytes_per_token
        cache = f"{format_size(self.cache_bytes)} for the prefix cache" if self.cache_bytes else "no prefix cache"
        return f"{format_size(kv_bytes)} for running sequences, {cache}"

    def _curl(self) -> tuple[str, ...]:
        """One command in several lines, which a shell takes as they are."""
        question = json.dumps([{"role": "user", "content": "Name three colors."}])
        body = shlex.quote(f'{{"model": "default",\n    "messages": {question}}}')
        key = ' -H "Authorization: Bearer $KEY"' if self.has_keys else ""
        return (
            f"  curl {self.url}/v1/chat/completions{key} \\",
            f"    -H 'Content-Type: application/json' -d {body}",
        )

    def _python(self) -> tuple[str, ...]:
        key = "os.environ['KEY']" if self.has_keys else '"none"'
        return (
            f"  {'import os; ' if self.has_keys else ''}from openai import OpenAI  # pip install openai",
            f'  client = OpenAI(base_url="{self.url}/v1", api_key={key})',
            '  answer = client.responses.create(model="default", input="Name three colors.")',
            "  print(answer.output_text)",
        )


def ready(url: str, *, has_keys: bool, bold: Callable[[str], str] = str) -> tuple[str, ...]:
    """Where the server is: a line, or two where a narrow terminal would cut it."""
    pages, programs = "in a browser", "for programs" + (" (needs an API key)" if has_keys else "")
    api = f"{url}/v1"
    if len(f"Ready: {url} {pages}, {api} {programs}") <= _WIDTH:
        return (f"Ready: {bold(url)} {pages}, {bold(api)} {programs}",)
    return f"Ready: {bold(url)} {pages}", f"       {bold(api)} {programs}"


def _advice(line: str) -> list[str]:
    """A command stays whole: what it does comes below it where there is no room beside it."""
    command, gap, text = line.partition("   ")
    if not gap or len(line) + 2 <= _WIDTH:
        return _wrap(line, "  ", "    ")
    return [f"  {command}", *_wrap(text, "    ", "    ")]


def _wrap(text: str, first: str, later: str) -> list[str]:
    """Never within a path or a name, which somebody may copy."""
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )


def url(host: str, port: int) -> str:
    """An address that works from this machine."""
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
