"""How a template writes calls, read off an answer with two of them.

    begin before_name NAME between ARGUMENTS after separator before_name NAME between ARGUMENTS after end
    ┗━━━ lead ━━━━━━┛                        ┗━━━━━━━━━ middle ━━━━━━━━━┛                        ┗━ rest ━┛

What middle and rest begin with comes after a call, what lead and middle end with comes before a name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from proxy_inference_engine.formats.derived.arguments import TEXTS, ArgumentSyntax, derive_arguments
from proxy_inference_engine.formats.derived.probe import KEYS, NAMED_ID, NAMES, AnswerFrame, CallShape
from proxy_inference_engine.formats.derived.units import MARKER, common_end, common_start, without_words
from proxy_inference_engine.formats.syntax import KEY, WORD, CallSyntax

_BOTH = (False, True)
SHAPES = tuple(CallShape(is_text, form, is_null) for form, is_null, is_text in product(("", NAMED_ID), _BOTH, _BOTH))


@dataclass(frozen=True, slots=True)
class DerivedCalls:
    """A syntax, and how calls have to be handed to the template that it was read off."""

    syntax: CallSyntax
    shape: CallShape
    answer_start: str = ""  # what the prompt ends with though every call begins with it
    is_broken: bool = False  # calls of the past are better written without the template


def derive_calls(frame: AnswerFrame) -> DerivedCalls | None:
    """None where the template writes no calls, or in a way that cannot be read off."""
    for shape in SHAPES:
        arguments = derive_arguments(partial(_after_name, frame, shape))
        if arguments is None:
            continue
        syntax = _two_calls(frame, shape, arguments) or _one_call(frame, shape, arguments)
        if syntax is not None:
            return DerivedCalls(syntax, shape, is_broken=arguments.is_broken)
        start = _answer_start(frame, shape, arguments)
        syntax = _two_calls(frame.starting_with(start), shape, arguments) if start else None
        if syntax is not None:
            return DerivedCalls(syntax, shape, start)
    return None


def _answer_start(frame: AnswerFrame, shape: CallShape, arguments: ArgumentSyntax) -> str:
    """What comes before the name of a second call, where the prompt has it before the first."""
    parts = _parts(frame, shape, NAMES, arguments) if frame.lead else None
    return parts[2] if parts is not None and parts[2].strip() and frame.prompt.endswith(parts[2]) else ""


def _after_name(frame: AnswerFrame, shape: CallShape, arguments: Mapping[str, Any]) -> str | None:
    text = frame.answer(shape.message(NAMES[:1], arguments))
    return None if text is None or NAMES[0] not in text else text.partition(NAMES[0])[2]


def _two_calls(frame: AnswerFrame, shape: CallShape, arguments: ArgumentSyntax) -> CallSyntax | None:
    parts = _parts(frame, shape, NAMES, arguments)
    if parts is None:
        return None
    lead, between, middle, again, rest = parts
    if between != again:
        return None
    after = common_start(middle, rest)
    before_name = common_end(lead, middle[len(after) :])
    separator = middle[len(after) : len(middle) - len(before_name)]
    begin, end = lead[: len(lead) - len(before_name)], rest[len(after) :]
    if not separator + before_name:
        # All that tells a further call from the end is the white space before both.
        separator = after[len(after.rstrip()) :]
        after, end = after.rstrip(), separator + end
        if not separator:
            return None
    # White space before a name says nothing of the first one: it may belong to the text before the calls.
    name_start = before_name.lstrip()
    space = before_name[: len(before_name) - len(name_start)]
    return _syntax(
        arguments,
        begin=(begin + space).lstrip(),
        before_name=name_start,
        between=between,
        after=after,
        separator=separator + space,
        end=end,
    )


def _one_call(frame: AnswerFrame, shape: CallShape, arguments: ArgumentSyntax) -> CallSyntax | None:
    """The syntax of calls where a template takes one call of a turn."""
    parts = _parts(frame, shape, NAMES[:1], arguments)
    if parts is None:
        return None
    lead, between, rest = parts
    return _syntax(arguments, before_name=lead.lstrip(), between=between, after=rest, can_repeat=False)


def _parts(frame: AnswerFrame, shape: CallShape, names: Sequence[str], arguments: ArgumentSyntax) -> list[str] | None:
    """What stands around names and arguments, in order; None where they do not stand there one after the other."""
    rest = frame.answer(shape.message(names, TEXTS))
    if rest is None:
        return None
    parts = []
    for name in names:
        for word in (name, arguments.text):
            part, found, rest = rest.partition(word)
            if not found:
                return None
            parts.append(part)
    ids = () if shape.id_form else shape.ids(names)
    return [without_words(part, ids) for part in (*parts, rest)]


def _syntax(arguments: ArgumentSyntax, **texts: Any) -> CallSyntax | None:
    begin = texts.get("begin", "")
    lead = (begin + texts["before_name"]).partition(WORD)[0]
    marker = MARKER.match(lead)
    inside = [text for name, text in texts.items() if isinstance(text, str) and text and name != "begin"]
    if not lead or any(word in text for word in (*NAMES, *KEYS) for text in (begin, *inside)):
        return None
    tag = arguments.parameter
    if tag is not None and KEY in tag.after_value and not texts["after"].strip():
        return None  # the next call would be one more key
    opening = lead if marker is None else marker.group()
    if begin and marker is not None and any(opening in text for text in inside):
        opening = begin.partition(WORD)[0]  # what opens a row of calls stands in each of them too
    return CallSyntax(
        opening=opening,
        style=arguments.style,
        parameter=arguments.parameter,
        item_separator=arguments.item_separator,
        key_separator=arguments.key_separator,
        quote=arguments.quote,
        is_at_start=marker is None and lead[0] in "[{(",  # as an answer in JSON might begin, too
        **texts,
    )
