"""`pie run "question"`: one answer on stdout."""

import json
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from proxy_inference_engine.cli.talk.conversation import TerminalConversation
from proxy_inference_engine.cli.talk.inputs import read_format, read_image, read_settings
from proxy_inference_engine.cli.talk.partner import AnswerEnd
from proxy_inference_engine.cli.talk.search import find_partner
from proxy_inference_engine.cli.talk.speech import speak
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.output.events import ReasoningDelta, TextDelta

_STDIN = "-"


def run(
    config: Config,
    *,
    question: Sequence[str] = (),
    schema: str | None = None,
    system: str | None = None,
    images: Sequence[str] = (),
    settings: Sequence[str] = (),
    as_json: bool = False,
) -> int:
    """1 where the answer was cut off before it was what the schema wants."""
    text = _question(question)
    format_ = None if schema is None else read_format(schema)
    parts, options = [read_image(place) for place in images], read_settings(settings)
    with closing(find_partner(config)) as partner:
        conversation = TerminalConversation(partner, system, format_, options, parts)
        end = _print_json(conversation, text) if as_json else speak(conversation.ask(text), partner.progress)
    assert end is not None
    for name in end.ignored:
        print(f"pie: {name} has no effect on this model", file=sys.stderr)
    if end.finish_reason == "length" and format_ is not None:
        print("pie: the answer was cut off before it was complete", file=sys.stderr)
        return 1
    return 0


def _question(words: Sequence[str]) -> str:
    """The words, in which `-` stands for what stdin has; without any, that alone."""
    if not words and sys.stdin is not None and not sys.stdin.isatty():
        words = (_STDIN,)
    text = " ".join(f"\n{_read()}\n" if word == _STDIN else word for word in words).strip()
    if not text:
        raise StartupError('what is the question? pie run "…"')
    return text


def _read() -> str:
    return "" if sys.stdin is None else sys.stdin.read().strip("\n")


def _print_json(conversation: TerminalConversation, question: str) -> AnswerEnd:
    text, reasoning, end = "", "", None
    for saying in conversation.ask(question):
        match saying:
            case TextDelta(piece):
                text += piece
            case ReasoningDelta(piece):
                reasoning += piece
            case AnswerEnd():
                end = saying
    assert end is not None
    print(json.dumps(_document(conversation, text, reasoning, end), ensure_ascii=False), flush=True)
    return end


def _document(conversation: TerminalConversation, text: str, reasoning: str, end: AnswerEnd) -> dict[str, Any]:
    counts = end.counts
    document: dict[str, Any] = {
        "model": conversation.partner.name,
        "text": text,
        "reasoning": reasoning or None,
        "finish_reason": end.finish_reason,
        "prompt_tokens": counts.num_prompt_tokens,
        "cached_tokens": counts.num_cached_tokens,
        "completion_tokens": counts.num_tokens,
        "prompt_ms": round(counts.prompt_ms, 1),
        "predicted_ms": round(counts.predicted_ms, 1),
        "ignored": list(end.ignored),
    }
    if conversation.format is not None and end.finish_reason != "length":
        document["parsed"] = json.loads(text)
    return document
