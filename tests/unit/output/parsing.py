"""The ways to cut and to parse an output, and what a recorded one is."""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proxy_inference_engine.formats import by_name
from proxy_inference_engine.formats.base import Labels
from proxy_inference_engine.interaction import TextGrammar, Tool, ToolKind
from proxy_inference_engine.output.events import CallDelta, CallEnded, CallStarted, ReasoningDelta
from proxy_inference_engine.output.parser import Parser
from proxy_inference_engine.output.pieces import LabelledPiece, VisibleText

WEATHER = Tool(
    "get_weather",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"enum": ["C", "F"]},
            "options": {"type": "object"},
            "is_exact": {"type": "boolean"},
        },
    },
)
CLOCK = Tool("get_weather_time")  # its name begins with another's
NOTE = Tool("note", kind=ToolKind.CUSTOM)
QUERY = Tool("query", kind=ToolKind.CUSTOM, grammar=TextGrammar("lark", "start: /.*/s"))
TOOLS = {tool.name: tool for tool in (WEATHER, CLOCK, NOTE, QUERY)}


class Call(NamedTuple):
    name: str
    arguments: str
    is_complete: bool = True


class Parsed(NamedTuple):
    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


class Mark(str):
    """A marker that comes as a token."""


Item = str | Mark


def labels_of(
    family: str,
    *,
    has_calls: bool = True,
    starts_in_reasoning: bool = False,
    are_markers_tokens: bool = False,
    is_bound: bool = True,
) -> Labels:
    format = by_name(family)
    return Labels(
        thinking=format.thinking,
        starts_in_reasoning=starts_in_reasoning,
        calls=format.calls if has_calls else None,
        channels=format.channels,
        tools=TOOLS if has_calls else {},
        tokens=dict(enumerate(sorted(format.tokens), start=1000)) if are_markers_tokens else {},
        is_bound=is_bound,
    )


def parse(labels: Labels, items: Iterable[Item], *, is_cut: bool = False) -> Parsed:
    return fold(pieces_of(labels, items, is_cut=is_cut))


def pieces_of(labels: Labels, items: Iterable[Item], *, is_cut: bool = False) -> list[LabelledPiece]:
    parser = Parser(labels)
    pieces: list[LabelledPiece] = []
    for item in items:
        pieces += parser.mark(str(item)) if isinstance(item, Mark) else parser.feed(item)
    return pieces + parser.finish(is_cut=is_cut)


def fold(pieces: Iterable[LabelledPiece]) -> Parsed:
    content, reasoning = "", ""
    calls: list[Call] = []
    for piece in pieces:
        match piece:
            case VisibleText(text):
                content += text
            case ReasoningDelta(text):
                reasoning += text
            case CallStarted(index, name):
                assert index == len(calls)
                calls.append(Call(name, "", False))
            case CallDelta(index, arguments):
                assert index == len(calls) - 1 and arguments and not calls[-1].is_complete
                calls[-1] = calls[-1]._replace(arguments=calls[-1].arguments + arguments)
            case CallEnded(index):
                assert index == len(calls) - 1 and not calls[-1].is_complete
                calls[-1] = calls[-1]._replace(is_complete=True)
    return Parsed(content, reasoning, tuple(calls))


def itemise(text: str, labels: Labels) -> list[Item]:
    """Single characters, and markers where they are tokens."""
    markers = sorted(labels.tokens.values(), key=len, reverse=True)
    if not markers:
        return list(text)
    parts = re.split("(" + "|".join(map(re.escape, markers)) + ")", text)
    return [item for part in parts for item in ([Mark(part)] if part in markers else part)]


def join(items: Iterable[Item]) -> list[Item]:
    """Neighbouring characters as one text."""
    joined: list[Item] = []
    for item in items:
        if joined and not isinstance(item, Mark) and not isinstance(joined[-1], Mark):
            joined[-1] += item
        else:
            joined.append(item)
    return joined


def cuts(items: Sequence[Item]) -> Iterator[list[Item]]:
    """The whole, single characters, every cut into two, and some random ones."""
    yield join(items)
    yield list(items)
    for place in range(1, len(items)):
        yield join(items[:place]) + join(items[place:])
    shaker = random.Random(len(items))
    for _ in range(20):
        places = sorted(shaker.choices(range(len(items) + 1), k=6))
        edges = [0, *places, len(items)]
        yield [item for i in range(len(edges) - 1) for item in join(items[edges[i] : edges[i + 1]])]


@dataclass(frozen=True, slots=True)
class Recording:
    name: str
    family: str
    output: str
    expected: Parsed
    starts_in_reasoning: bool = False
    has_calls: bool = True

    def labels(self, *, are_markers_tokens: bool = False, is_bound: bool = True) -> Labels:
        return labels_of(
            self.family,
            has_calls=self.has_calls,
            starts_in_reasoning=self.starts_in_reasoning,
            are_markers_tokens=are_markers_tokens,
            is_bound=is_bound,
        )
