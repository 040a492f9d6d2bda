"""How a template marks reasoning, read off an answer with some."""

import re
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from proxy_inference_engine.formats.derived.probe import (
    ANSWER,
    KEYS,
    NAMES,
    THOUGHT,
    AnswerFrame,
    CallShape,
    ProbeMessage,
)
from proxy_inference_engine.formats.derived.units import common_start, merged
from proxy_inference_engine.formats.syntax import Thinking

FIELDS = ("reasoning_content", "reasoning", "thinking", "thought", "tool_plan")  # what templates call it
_MARKER = r"(?:<[^<>\s]+>|\[/?[A-Z_]{2,}\])"
_OPENING = re.compile(rf"({_MARKER}(?:\w+{_MARKER})?)((?:thought|analysis)?\s*)$")
_CLOSING = re.compile(rf"\s*({_MARKER}(?:\w+{_MARKER})?)(\s*)")
_LAST = re.compile(_MARKER)
_WORDS = re.compile("think|thought|reason|inner", re.IGNORECASE)
# In templates that only cut reasoning out of a text.
_CLOSINGS = re.compile(r"</((?:\w+:)?think(?:ing)?)>|(\[/THINK\])|<\|END_THINKING\|>|<\|inner_suffix\|>")
_OPENED = re.compile(r"<((?:\w+:)?think(?:ing)?)>\s*$")
_PAIRS = {
    "[/THINK]": "[THINK]",
    "<|END_THINKING|>": "<|START_THINKING|>",
    "<|inner_suffix|>": "<|inner_prefix|>",
}


class DerivedThinking(NamedTuple):
    block: Thinking
    field: str  # what the template calls it


def derive_thinking(frame: AnswerFrame, shape: CallShape) -> DerivedThinking | None:
    """None where the template prints no reasoning."""
    for thinks, field in product((False, True), FIELDS):
        texts = [frame.whole(message, thinks=thinks) or "" for message in _messages(field, shape)]
        block = next(filter(None, (_read(text, frame) for text in texts)), None)
        if block is not None:
            return DerivedThinking(_with_call_gap(block, texts[-1]), field)
    return None


def _with_call_gap(block: Thinking, text: str) -> Thinking:
    """`text` has calls behind its reasoning."""
    _, closing, calls = text.partition(THOUGHT)[2].partition(block.closing)
    gap = calls[: len(calls) - len(calls.lstrip())]
    # Space that the opening has, too, belongs to what leads to a message.
    if not closing or gap == block.gap or block.gap.strip() or (gap and block.opening.startswith(gap)):
        return block
    return replace(block, call_gap=gap)


def find_thinking(source: str, prompt: str) -> Thinking | None:
    """The block whose end a template mentions, or that its prompt ends with."""
    found = _CLOSINGS.search(source)
    if found is not None:
        closing = found.group()
        return Thinking(_PAIRS.get(closing) or f"<{found[1]}>", closing)
    opened = _OPENED.search(prompt)
    return None if opened is None else Thinking(opened.group().strip(), f"</{opened[1]}>")


def _messages(field: str, shape: CallShape) -> list[ProbeMessage]:
    # Some keep reasoning only where calls follow it.
    return [
        {"role": "assistant", "content": ANSWER, field: THOUGHT},
        {**shape.message(NAMES[:1], {KEYS[0]: ANSWER}), field: THOUGHT},
    ]


def _read(text: str, frame: AnswerFrame) -> Thinking | None:
    before, found, after = text.partition(THOUGHT)
    to_answer = after.partition(ANSWER)[0]
    opening, closing = _OPENING.search(before), _CLOSING.match(to_answer)
    if not found:
        return None
    if opening is None or closing is None:
        return _opened_by_prompt(before, to_answer, frame)
    if frame.lead and before.startswith(frame.prompt) and to_answer.endswith(frame.lead):
        return _led_elsewhere(before.removeprefix(frame.prompt), to_answer.removesuffix(frame.lead), frame)
    mark = opening[1]
    if "assistant" in mark:  # a message of its own, and the answer another
        mark = _LAST.findall(mark)[-1]
    if "assistant" in mark or not _WORDS.search(mark + opening[2] + closing.group()):
        return None
    header = opening[2] if opening[2].strip() else ""
    return Thinking(mark, closing[1], header, _gap(to_answer[closing.end(1) :], closing[2], frame.lead))


def _gap(rest: str, space: str, lead: str) -> str:
    """What stands between the end of the block and the answer, or what leads to it."""
    return rest.removesuffix(lead) if lead and rest.endswith(lead) else space


def _led_elsewhere(opening: str, closing: str, frame: AnswerFrame) -> Thinking | None:
    """A message of its own, led to as an answer is but for a word: to=self instead of to=user."""
    return Thinking(opening, closing, "", "") if merged(opening, frame.lead) else None


def _opened_by_prompt(before: str, to_answer: str, frame: AnswerFrame) -> Thinking | None:
    """A block without marks of its own: the prompt ends with words that no history has, and others end it."""
    shared = common_start(frame.prompt, before)
    opening, closing = frame.prompt[len(shared) :].strip(), to_answer.strip()
    if shared != before or not opening or not closing or not _WORDS.search(opening + closing):
        return None
    return Thinking(opening, closing, "", to_answer[len(to_answer.rstrip()) :])
