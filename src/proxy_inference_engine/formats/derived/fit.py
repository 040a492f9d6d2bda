"""A family as a model's own chat template wants it: what the template does with a probe is what the format says.

A family's own syntax stays where the template writes the same; where it writes another, that one is derived. Where
none can be read off, tools are described in our own words, never against what the template would say.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from proxy_inference_engine.formats.base import Format
from proxy_inference_engine.formats.convention import write_calls
from proxy_inference_engine.formats.derived.arguments import TEXTS
from proxy_inference_engine.formats.derived.calls import SHAPES, DerivedCalls, derive_calls
from proxy_inference_engine.formats.derived.probe import (
    ANSWER,
    IDS,
    NAMES,
    RESULT,
    RULE,
    SYSTEM,
    TOOLS,
    USER,
    AnswerFrame,
    CallShape,
    Render,
)
from proxy_inference_engine.formats.derived.thinking import derive_thinking, find_thinking
from proxy_inference_engine.formats.derived.units import markers
from proxy_inference_engine.formats.hermes import HERMES_CALLS, HERMES_TOKENS
from proxy_inference_engine.formats.syntax import CallSyntax, Thinking
from proxy_inference_engine.interaction import ToolCall


class Specials(NamedTuple):
    """The texts of a vocabulary's special tokens, and of those that end a turn."""

    texts: Collection[str] = ()
    ends: Sequence[str] = ()


DERIVED = "derived"
_LONG_ID = "call_qid0000000000000001"


def fit(format: Format, render: Render, source: str, vocabulary: Specials, *, keeps_calls: bool = False) -> Format:
    """`source` is the template's own text. With `keeps_calls` the family's calls stay, whatever the template writes."""
    fitted = _fit(format, render, source, vocabulary.ends, keeps_calls)
    texts = _format_texts(fitted)
    tokens = {special for special in vocabulary.texts if any(special in text for text in texts)}
    return replace(fitted, tokens=fitted.tokens | tokens)


def _fit(format: Format, render: Render, source: str, ends: Sequence[str], keeps_calls: bool) -> Format:
    listed, ruled = render([USER], TOOLS) or "", render([SYSTEM, USER], TOOLS) or ""
    format = _with_roles(format, render, listed, ruled, keeps_calls)
    if format.channels is not None:
        return format
    lists_tools = NAMES[0] in listed + ruled
    plain = AnswerFrame.of(render, TOOLS if lists_tools else None, ends)
    frame = _knowing(plain, source)
    derived = derive_calls(frame) if "tool_calls" in source else None
    shape = CallShape() if derived is None else derived.shape
    format = replace(_with_thinking(format, plain, shape, source), reads_tools=lists_tools)
    format = _with_lead(format, frame, shape, "" if derived is None else derived.answer_start)
    if derived is not None:
        fitted = _with_ids(_with_calls(format, derived), frame, shape)
        if derived.is_broken:
            keeps_results = not format.must_alternate and _has_role_of_results(render)
            fitted = replace(fitted, reads_calls=False, reads_results=keeps_results)
        return replace(fitted, name=format.name, calls=format.calls) if keeps_calls else fitted
    if keeps_calls:
        return format
    has_calls = any(NAMES[0] in (frame.whole(each.message(NAMES[:1], TEXTS)) or "") for each in SHAPES)
    if not has_calls and (not lists_tools or _is_taught(format, source)):
        return replace(format, reads_calls=False, reads_results=lists_tools and _has_role_of_results(render))
    tokens = format.tokens | HERMES_TOKENS
    return replace(format, calls=HERMES_CALLS, tokens=tokens, reads_tools=False, reads_calls=False)


def _is_taught(format: Format, source: str) -> bool:
    """Whether the model knows the family's syntax of calls though the template writes none."""
    return format.is_taught_elsewhere or (format.calls is not None and format.calls.opening in source)


def _has_role_of_results(render: Render) -> bool:
    """Whether the template writes a result, and not as it would write a user's turn."""
    before = [USER, {"role": "assistant", "content": ANSWER}]
    result = {"content": RESULT, "name": NAMES[0], "tool_call_id": IDS[0]}
    as_result, as_user = (render([*before, {"role": role, **result}], TOOLS) for role in ("tool", "user"))
    return as_result is not None and RESULT in as_result and as_result != as_user


def _with_roles(format: Format, render: Render, listed: str, ruled_listed: str, keeps: bool) -> Format:
    """Which turns the template takes, whatever others of the family do; one that was asked for `keeps` its own too."""
    if render([USER]) is None:
        return format
    ruled = render([SYSTEM, USER])
    has_rule = ruled is not None and RULE in ruled
    loses_tools = NAMES[0] in listed and NAMES[0] not in ruled_listed
    return replace(
        format,
        must_alternate=render([USER, USER]) is None or (keeps and format.must_alternate),
        has_system_role=has_rule and not loses_tools and (format.has_system_role or not keeps),
        needs_system_for_tools=NAMES[0] not in listed and NAMES[0] in ruled_listed,
    )


def _knowing(frame: AnswerFrame, source: str) -> AnswerFrame:
    found = derive_thinking(frame, CallShape())
    block = find_thinking(source, frame.prompt) if found is None else found.block
    return frame if block is None else frame.knowing(block.opening, block.closing)


def _with_thinking(format: Format, frame: AnswerFrame, shape: CallShape, source: str) -> Format:
    found = derive_thinking(frame, shape)
    block = find_thinking(source, frame.prompt) if found is None else found.block
    if found is not None:
        format = replace(format, reasoning_field=found.field)
    known = format.thinking
    if block is None:
        return format
    if found is None:
        block = replace(block, gap=_gap_in_history(block, frame))
    if known is not None and (known.opening, known.closing) == (block.opening, block.closing):
        if found is None and block.closing not in frame.head:
            return format
        return replace(format, thinking=replace(known, gap=block.gap, call_gap=block.call_gap))
    return replace(format, thinking=block, tokens=format.tokens | {block.opening, block.closing})


def _gap_in_history(block: Thinking, frame: AnswerFrame) -> str:
    """What a template that prints no reasoning writes behind an empty block."""
    _, closing, gap = frame.head.rpartition(block.closing)
    return gap if closing and not gap.strip() else block.gap


def _with_lead(format: Format, frame: AnswerFrame, shape: CallShape, answer_start: str) -> Format:
    """What stands around a text where each text is a message of its own."""
    lead = frame.lead
    if not lead:
        return format
    lead, trails = answer_start + lead, frame.trails(shape)
    tokens = format.tokens | markers([lead, *trails])
    return replace(format, lead=lead, trails=trails, answer_start=answer_start, tokens=tokens)


def _with_calls(format: Format, derived: DerivedCalls) -> Format:
    shape, syntax = derived.shape, derived.syntax
    format = replace(
        format,
        has_text_arguments=shape.has_text_arguments,
        has_null_content=shape.has_null_content,
        id_form=shape.id_form,
        has_parallel_calls=syntax.can_repeat,
    )
    if format.calls is not None and _is_same(format.calls, syntax):
        return format
    return replace(format, name=DERIVED, calls=syntax, tokens=format.tokens | markers(_texts(syntax)))


def _with_ids(format: Format, frame: AnswerFrame, shape: CallShape) -> Format:
    """Some templates refuse an id that has not nine signs."""
    message = shape.message(NAMES[:1], TEXTS)
    if shape.id_form or frame.whole(message) is None:
        return format
    message["tool_calls"][0]["id"] = _LONG_ID
    return format if frame.whole(message) is not None else replace(format, num_id_chars=9)


def _is_same(known: CallSyntax, derived: CallSyntax) -> bool:
    """Whether both write the probe in the same way."""
    arguments = str(TEXTS).replace("'", '"')
    calls = [ToolCall(id=name, name=name, arguments=arguments) for name in NAMES[: 2 if derived.can_repeat else 1]]
    return known.quote == derived.quote and write_calls(known, calls, ()) == write_calls(derived, calls, ())


def _format_texts(format: Format) -> list[str]:
    texts = [format.lead, *format.trails]
    if format.thinking is not None:
        texts += [format.thinking.opening, format.thinking.closing, format.thinking.gap]
    return texts if format.calls is None else texts + _texts(format.calls)


def _texts(syntax: CallSyntax) -> list[str]:
    texts: list[Any] = [syntax.begin, syntax.before_name, syntax.between, syntax.after, syntax.separator, syntax.end]
    tag = syntax.parameter
    if tag is not None:
        texts += [tag.before_key, tag.before_value, tag.after_value, tag.separator, tag.before_text, tag.after_text]
    return [text for text in texts if text]
