"""What becomes of published chat templates: a table with a line for each file of a folder.

    python scripts/templates.py FOLDER

For each template: how many conversations come out as jinja2 renders them, the family or the syntax derived from it, and
whether calls and reasoning survive: written by the template, read by our parser, they have to be the same. `taught` is
how tools are told where the template lists none: in words with the template's own calls, or with calls of ours. The
last lines are the sums. Templates are other people's work: bring your own folder.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from jinja2.ext import LoopControlExtension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from proxy_inference_engine.errors import InvalidRequest, StartupError
from proxy_inference_engine.formats import Format, detect
from proxy_inference_engine.formats.base import Labels
from proxy_inference_engine.formats.derived.fit import DERIVED
from proxy_inference_engine.formats.derived.units import common_start
from proxy_inference_engine.formats.signature import signature
from proxy_inference_engine.interaction import Interaction, Role, Tool, ToolCall
from proxy_inference_engine.output.events import CallDelta, CallEnded, CallStarted, ReasoningDelta
from proxy_inference_engine.output.parser import Parser
from proxy_inference_engine.prompt.fitted_template import fit_template
from proxy_inference_engine.prompt.render import PromptRenderer
from proxy_inference_engine.prompt.template import GenerationTag
from proxy_inference_engine.runners.fake import ByteTokenizer

NOW = datetime(2026, 7, 26, 12)
THOUGHT = "They want the weather, so look."
TOOLS = (
    Tool(
        name="get_weather",
        description="Tells the weather.",
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where."},
                "days": {"type": "integer", "description": "How long."},
                "is_metric": {"type": "boolean", "description": "Units."},
                "places": {"type": "array", "items": {"type": "string"}, "description": "More."},
            },
            "required": ["city"],
        },
    ),
    Tool(
        name="note",
        description="Notes a text.",
        parameters={"type": "object", "properties": {"text": {"type": "string", "description": "It."}}},
    ),
)
WEATHER = ToolCall("call00001", "get_weather", '{"city": "São Paulo", "days": 3}')
NOTE = ToolCall("call00002", "note", '{"text": "Tea, at five (or \\"so\\")\\nand more"}')
RICH = ToolCall("call00001", "get_weather", '{"city": "Rome", "is_metric": true, "places": ["a b", "c"]}')


def user(text: str) -> Interaction:
    return Interaction.of(Role.USER, text)


def assistant(text: str, *calls: ToolCall, thought: str = "") -> Interaction:
    fields: dict[str, Any] = {"tool_calls": calls} if calls else {}
    return Interaction.of(Role.ASSISTANT, text, **fields, **({"reasoning_content": thought} if thought else {}))


def result(call: ToolCall, text: str) -> Interaction:
    return Interaction.of(Role.TOOL, text, tool_call_id=call.id, name=call.name)


RULE, ASK, REPLY = Interaction.of(Role.SYSTEM, "Be brief."), user("How is the weather?"), assistant("Fine.")
CONVERSATIONS: dict[str, tuple[Sequence[Interaction], bool]] = {
    "question": ([ASK], False),
    "system": ([RULE, ASK], False),
    "turns": ([ASK, REPLY, user("And there?")], False),
    "system, turns": ([RULE, ASK, REPLY, user("And there?")], False),
    "two questions": ([ASK, user("And there?")], False),
    "answer first": ([REPLY, ASK], False),
    "tools": ([ASK], True),
    "system, tools": ([RULE, ASK], True),
    "call": ([ASK, assistant("", WEATHER), result(WEATHER, "Sun.")], True),
    "text and call": ([ASK, assistant("I look.", WEATHER), result(WEATHER, "Sun.")], True),
    "two calls": ([ASK, assistant("", WEATHER, NOTE), result(WEATHER, "Sun."), result(NOTE, "Done.")], True),
    "call, answer": ([ASK, assistant("", WEATHER), result(WEATHER, "Sun."), REPLY, user("Thanks.")], True),
    "reasoning": ([ASK, assistant("Fine.", thought=THOUGHT), user("And there?")], False),
    "reasoning and call": ([ASK, assistant("", WEATHER, thought=THOUGHT), result(WEATHER, "Sun.")], True),
}


class Peer:
    """The template as Hugging Face's library renders it."""

    def __init__(self, source: str) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension, GenerationTag]
        )
        environment.filters["tojson"] = _tojson
        environment.filters["from_json"] = environment.filters["fromjson"] = json.loads
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = NOW.strftime
        self._template = environment.from_string(source)

    def render(self, turns: Sequence[Interaction], has_tools: bool) -> str | None:
        tools = [signature(tool) for tool in TOOLS] if has_tools else None
        given = {"bos_token": "<|bos|>", "eos_token": "<|im_end|>", "documents": None, "add_generation_prompt": True}
        try:
            return self._template.render(messages=[_message(turn) for turn in turns], tools=tools, **given)
        except Exception:
            return None


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: Any = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    raise ValueError(message)


def _message(turn: Interaction) -> dict[str, Any]:
    message: dict[str, Any] = {"role": turn.role.value, "content": turn.text}
    message |= {
        name: turn.metadata[name] for name in ("name", "tool_call_id", "reasoning_content") if name in turn.metadata
    }
    if turn.calls:
        message["tool_calls"] = [
            {
                "type": "function",
                "id": call.id,
                "function": {"name": call.name, "arguments": json.loads(call.arguments)},
            }
            for call in turn.calls
        ]
    return message


class Subject(NamedTuple):
    """A template as this server takes it."""

    format: Format
    renderer: PromptRenderer
    load_ms: float

    @classmethod
    def of(cls, source: str) -> "Subject":
        tokenizer = ByteTokenizer()
        started = time.perf_counter()
        fitted = fit_template(detect(source), source, tokenizer, clock=lambda: NOW)
        load_ms = 1000 * (time.perf_counter() - started)
        renderer = PromptRenderer(
            tokenizer, fitted.format, fitted.template, bos_text="<|bos|>", eos_text="<|im_end|>", clock=lambda: NOW
        )
        return cls(fitted.format, renderer, load_ms)

    def render(self, turns: Sequence[Interaction], has_tools: bool, add_generation_prompt: bool = True) -> str | None:
        tools = TOOLS if has_tools else ()
        try:
            return self.renderer.text(turns, tools=tools, add_generation_prompt=add_generation_prompt)
        except InvalidRequest:
            return None

    def read_back(self, turn: Interaction, has_tools: bool) -> tuple[list[tuple[str, Any]], str] | None:
        """The calls and the reasoning that our parser finds in a turn as the template writes it."""
        variables = {"enable_thinking": True} if "enable_thinking" in self.renderer.variables else {}
        tools = TOOLS if has_tools else ()
        try:
            prompt = self.renderer.text([ASK], tools=tools, variables=variables)
            whole = self.renderer.text([ASK, turn], tools=tools, add_generation_prompt=False, variables=variables)
        except InvalidRequest:
            return None
        lead = prompt.rpartition(ASK.text)
        shared = common_start(lead[2], whole.rpartition(ASK.text)[2])
        thinking = self.format.thinking
        answer = whole.rpartition(ASK.text)[2][len(shared) :]
        # A history may leave out the words that a prompt opens a block with.
        starts = (shared, prompt) if THOUGHT in answer else (shared,)
        is_open = thinking is not None and any(text.rstrip().endswith(thinking.opening) for text in starts)
        return self._parse(answer, is_open)

    def _parse(self, text: str, is_open: bool) -> tuple[list[tuple[str, Any]], str]:
        format = self.format
        labels = Labels(
            thinking=format.thinking,
            starts_in_reasoning=is_open,
            calls=format.calls if format.channels is None else None,
            channels=format.channels,
            leads=format.leads(can_reason=True),
            trails=format.trails,
            start=format.answer_start,
            tools={tool.name: tool for tool in TOOLS},
        )
        parser = Parser(labels)
        if format.channels is not None:
            text = text.removeprefix("<|start|>assistant")
        calls: list[tuple[str, Any]] = []
        thought, name, arguments = "", "", ""
        for piece in [*parser.feed(text), *parser.finish()]:
            match piece:
                case ReasoningDelta():
                    thought += piece.text
                case CallStarted():
                    name, arguments = piece.name, ""
                case CallDelta():
                    arguments += piece.arguments
                case CallEnded():
                    calls.append((name, _value(arguments)))
        return calls, thought.strip()


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _is_read(subject: Subject, *calls: ToolCall) -> bool:
    found = subject.read_back(assistant("", *calls), True)
    return found is not None and found[0] == [(call.name, json.loads(call.arguments)) for call in calls]


def measure(source: str) -> dict[str, str]:
    """One line of the table."""
    try:
        subject = Subject.of(source)
    except StartupError as error:
        return {"family": str(error)[:60]}
    peer = Peer(source)
    kinds = Counter(_compared(subject, peer, *each) for each in CONVERSATIONS.values())
    line = {"rendered": " ".join(f"{kind} {num}" for kind, num in sorted(kinds.items())), "family": subject.format.name}
    line["ms"] = f"{subject.load_ms:.0f}"
    if "tools" in source or "tool_calls" in source:
        rows = [(WEATHER,), (NOTE,), (RICH,)] + ([(WEATHER, NOTE)] if subject.format.has_parallel_calls else [])
        line["calls"] = f"{sum(_is_read(subject, *row) for row in rows)}/{len(rows)}"
        line["taught"] = "" if subject.renderer.reads_tools else "ours" if not subject.format.reads_calls else "words"
    if subject.format.thinking is not None or subject.format.channels is not None:
        line["reasoning"] = _reasoning(subject)
    return line


def _compared(subject: Subject, peer: Peer, turns: Sequence[Interaction], has_tools: bool) -> str:
    ours, theirs = subject.render(turns, has_tools), peer.render(turns, has_tools)
    if ours is None or theirs is None:
        return "refused" if ours is theirs else "theirs" if ours is None else "ours"
    return "same" if ours == theirs else "differ"


def _reasoning(subject: Subject) -> str:
    plain = subject.read_back(assistant("Fine.", thought=THOUGHT), False)
    calling = subject.read_back(assistant("", WEATHER, thought=THOUGHT), True)
    if any(found is not None and found[1] == THOUGHT for found in (plain, calling)):
        return "yes"
    return "not written" if not _is_written(subject) else "no"


def _is_written(subject: Subject) -> bool:
    text = subject.render([ASK, assistant("Fine.", thought=THOUGHT)], False, add_generation_prompt=False)
    return text is not None and THOUGHT in text


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    given = options.parse_args()
    columns = ("rendered", "family", "taught", "calls", "reasoning", "ms")
    lines = {path.name: measure(path.read_text(encoding="utf-8")) for path in sorted(given.folder.glob("*.jinja"))}
    for name, line in (("template", dict(zip(columns, columns, strict=True))), *lines.items()):
        print(f"{name[:52]:52} " + " ".join(f"{line.get(each, ''):{_WIDTHS[each]}}" for each in columns))
    with_calls = [line["calls"] for line in lines.values() if "calls" in line]
    num_whole = sum(calls.split("/")[0] == calls.split("/")[1] for calls in with_calls)
    reasoning = Counter(line["reasoning"] for line in lines.values() if "reasoning" in line)
    taught = Counter(line["taught"] for line in lines.values() if line.get("taught"))
    words = [word for line in lines.values() for word in line.get("rendered", "").split()]
    cells: Counter[str] = Counter()
    for kind, num in zip(words[::2], words[1::2], strict=True):
        cells[kind] += int(num)
    families = Counter("derived" if line.get("family") == DERIVED else "a family's" for line in lines.values())
    print(f"\n{len(lines)} templates; {num_whole} of {len(with_calls)} that take tools round-trip every call")
    print(f"conversations as jinja2 renders them, and not: {dict(cells)}")
    print(f"syntax: {dict(families)}")
    print(f"tools told by us: {dict(taught)}")
    print(f"reasoning: {dict(reasoning)}")
    return 0


_WIDTHS = {"rendered": 42, "family": 12, "taught": 6, "calls": 5, "reasoning": 11, "ms": 3}

if __name__ == "__main__":
    sys.exit(main())
