"""A conversation made of words that no template knows: what a template writes around them can be read off.

The last question's word ends everything that comes before an answer, so only what follows it is looked at.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from proxy_inference_engine.formats.derived.units import common_start

RULE, QUESTION, ANSWER, THOUGHT, RESULT = "qrule", "qquestion", "Qanswer", "Qthought", "Qresult"
NAMES = ("qtoola", "qtoolb")
KEYS = ("qkeya", "qkeyb")
IDS = ("qid000001", "qid000002")  # nine signs: some templates refuse others
NAMED_ID = "functions.{name}:{index}"  # where a template prints ids instead of names

ProbeMessage = dict[str, Any]
USER: ProbeMessage = {"role": "user", "content": QUESTION}
SYSTEM: ProbeMessage = {"role": "system", "content": RULE}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Does it.",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string", "description": "One."} for key in KEYS},
                "required": list(KEYS),
            },
        },
    }
    for name in NAMES
]
# Tokens that end a turn; a model's file often names one of several.
_ENDS = re.compile(
    r"</s>|<eos>|<\|eos\|>|<end_of_turn>|<turn\|>|<SPECIAL_12>|<\|(?:END|START)_OF_TURN_TOKEN\|>|\[e~\["
    r"|<\|(?:im_end|end|endoftext|end_of_\w+|eo[tm]\w*|return|calls?|user|observation|tool_response)\|?>"
    r"|<｜end▁of▁sentence｜>|<[^<>\s]*_eos[^<>\s]*>"
)
_NO_THOUGHT = re.compile(r"^\s*(?:(?:<[^<>\s]*think[^<>\s]*>|\[/?THINK\])\s*){0,2}", re.IGNORECASE)


class Render(Protocol):
    """A chat template with everything else it wants: messages and tools in, text out; None where it refuses.

    With `thinks`, a template that asks whether to think is told so.
    """

    def __call__(
        self,
        messages: Sequence[ProbeMessage],
        tools: list[dict[str, Any]] | None = None,
        *,
        adds_prompt: bool = False,
        thinks: bool = False,
    ) -> str | None: ...


@dataclass(frozen=True, slots=True)
class CallShape:
    """How the calls of a message are handed to a template."""

    has_text_arguments: bool = False
    id_form: str = ""
    has_null_content: bool = False  # None beside calls instead of an empty text

    def message(self, names: Sequence[str], arguments: Mapping[str, Any]) -> ProbeMessage:
        given = json.dumps(arguments) if self.has_text_arguments else dict(arguments)
        calls = [
            {"type": "function", "id": id_, "function": {"name": name, "arguments": given}}
            for name, id_ in zip(names, self.ids(names), strict=True)
        ]
        content = None if self.has_null_content else ""
        return {"role": "assistant", "content": content, "tool_calls": calls}

    def ids(self, names: Sequence[str]) -> list[str]:
        if not self.id_form:
            return list(IDS[: len(names)])
        return [self.id_form.format(name=name, index=index) for index, name in enumerate(names)]


@dataclass(frozen=True, slots=True)
class AnswerFrame:
    """Where an answer stands in a rendered conversation: what comes before it and after it."""

    render: Render
    tools: list[dict[str, Any]] | None
    prompt: str  # what stands between the question and what a model writes
    head: str  # what stands between the question and an answer that is text
    leads: tuple[str, ...]  # what of these is no part of an answer
    tail: str
    ends: tuple[str, ...]  # texts that end a turn
    block: tuple[str, str] = ("", "")  # what opens and closes reasoning

    @classmethod
    def of(cls, render: Render, tools: list[dict[str, Any]] | None, ends: Sequence[str]) -> "AnswerFrame":
        plain = _after_question(render([USER, {"role": "assistant", "content": ANSWER}], tools))
        head, _, tail = plain.partition(ANSWER) if plain is not None else ("", "", "")
        prompt = _after_question(render([USER], tools, adds_prompt=True)) or ""
        # A text and a call may begin alike behind the prompt.
        leads = (prompt,) if prompt and head.startswith(prompt) else tuple(filter(None, (head, prompt)))
        return cls(render, tools, prompt, head, leads, tail, tuple(filter(None, ends)))

    @property
    def lead(self) -> str:
        """What a model writes before an answer that is text; empty if nothing."""
        if not self.prompt or not self.head.startswith(self.prompt):
            return ""
        lead = self._without_block(self.head[len(self.prompt) :])
        return lead if lead.strip() else ""

    def trails(self, shape: CallShape) -> tuple[str, ...]:
        """What a model writes behind a text, before calls and before the end of its turn."""
        text = self.whole({**shape.message(NAMES[:1], {}), "content": ANSWER}) or ""
        to_calls = common_start(text.partition(ANSWER)[2], self.tail)
        to_end = self._ended(self.tail.removeprefix(to_calls))
        return tuple(filter(str.strip, (to_calls, to_end)))

    def knowing(self, opening: str, closing: str) -> "AnswerFrame":
        """The frame in which a block of reasoning says nothing: one that is empty, or that only a prompt has opened."""
        frame = replace(self, block=(opening, closing))
        bare = self.prompt.rstrip().removesuffix(closing).rstrip().removesuffix(opening)
        if self.head.startswith(self.prompt) or not bare or not self.head.startswith(bare):
            return frame
        return replace(frame, prompt=bare, leads=(bare,))

    def _without_block(self, text: str) -> str:
        found = _NO_THOUGHT.match(text)
        if found is not None and found.group().strip():
            return text[found.end() :]
        opening, closing = self.block
        return text.removeprefix(opening).removeprefix(closing)

    def _without_text(self, text: str) -> str:
        """What stands around an empty text is no part of the calls behind it."""
        rest = text.removeprefix(self.lead)
        return text if rest == text else rest.removeprefix(common_start(rest, self.tail))

    def starting_with(self, start: str) -> "AnswerFrame":
        """The frame in which an end of the prompt counts as the start of every answer."""
        prompt = self.prompt.removesuffix(start)
        return replace(self, prompt=prompt, leads=(prompt,))

    def whole(self, message: ProbeMessage, *, thinks: bool = False) -> str | None:
        """All that follows the question where this message answers it."""
        return _after_question(self.render([USER, message], self.tools, thinks=thinks))

    def answer(self, message: ProbeMessage) -> str | None:
        """What a model would write to answer with this message."""
        text = self.whole(message)
        if text is None:
            return None
        text = text[max((len(common_start(text, lead)) for lead in self.leads), default=0) :].removesuffix(self.tail)
        return self._ended(self._without_text(self._without_block(text)))

    def _ended(self, text: str) -> str:
        # A turn with calls may end in another way than one with text.
        for end in self.ends:
            text = text.partition(end)[0]
        return _ENDS.split(text, maxsplit=1)[0]


def _after_question(text: str | None) -> str | None:
    if text is None or QUESTION not in text:
        return None
    return text.rpartition(QUESTION)[2]
