"""Values whose strings stand between marks and whose keys are bare (Gemma 4), as they come; each becomes JSON text.

[<|"|>a<|"|>,{city:<|"|>Paris<|"|>,days:3}]
"""

import json
import re

from proxy_inference_engine.output.pieces import ArgumentSink
from proxy_inference_engine.output.source import Finder, Reading, Source

_MAX_DEPTH = 64
_COLON = Finder(":")
_BARE = re.compile(r"[^,\]}]*")


def pass_marked(
    source: Source, sink: ArgumentSink, mark: str, *, is_text: bool = False, depth: int = 0
) -> Reading[bool]:
    """Hand on one value; a string without its quotes if `is_text`. False if it is cut off or too deep."""
    if (yield from source.expect(mark)) is not None:
        return (yield from pass_text(source, sink, mark, is_quoted=not is_text))
    while source.is_empty and not source.is_over:
        yield
    if source.next_char not in ("[", "{"):
        return (yield from _pass_bare(source, sink))
    if depth == _MAX_DEPTH:
        return False
    is_object = source.take(1) == "{"
    sink.arguments("{" if is_object else "[")
    end, before = "}" if is_object else "]", ""
    while (yield from source.expect(end)) is None:
        yield from source.expect(",")
        sink.arguments(before)
        if is_object:
            key = yield from source.through(_COLON)
            if key is None:
                return False
            sink.arguments(f"{json.dumps(key.strip(), ensure_ascii=False)}: ")
        if not (yield from pass_marked(source, sink, mark, depth=depth + 1)):
            return False
        before = ", "
    sink.arguments(end)
    return True


def pass_text(source: Source, sink: ArgumentSink, after: str, *, is_quoted: bool) -> Reading[bool]:
    """Hand on a text that stands there as it is, up to what ends it."""
    finder = Finder(after)
    sink.arguments('"' if is_quoted else "")
    while True:
        text, marker = source.take_until(finder, awaits_marker=True)
        sink.arguments(json.dumps(text, ensure_ascii=False)[1:-1] if is_quoted else text)
        if marker is not None:
            sink.arguments('"' if is_quoted else "")
            return True
        if source.is_over:
            return False
        yield


def _pass_bare(source: Source, sink: ArgumentSink) -> Reading[bool]:
    """A number or a word; what is neither becomes a string."""
    parts = [source.take_match(_BARE)]
    while source.is_empty and not source.is_over:
        yield
        parts.append(source.take_match(_BARE))
    if source.is_empty:
        return False
    text = "".join(parts).strip()
    try:
        json.loads(text)
    except ValueError:
        text = json.dumps(text, ensure_ascii=False)
    sink.arguments(text)
    return True
