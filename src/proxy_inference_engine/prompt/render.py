"""Interactions to a prompt: text for people, token ids for the engine. Knows no HTTP and no model file.

What a user writes never becomes a control token, and a harmless chat gives exactly the ids that the whole rendered
text would give.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.formats import Format
from proxy_inference_engine.formats.history import calls_of
from proxy_inference_engine.interaction import ContentType, Interaction, Role, Tool
from proxy_inference_engine.prompt.marks import Chat, Layout, Marks, Message, strings, unmarked
from proxy_inference_engine.prompt.messages import make_message, make_tools
from proxy_inference_engine.prompt.pictures import PARAM, image_parts, place_images
from proxy_inference_engine.prompt.template import Template
from proxy_inference_engine.prompt.tokens import PromptEncoder, Span
from proxy_inference_engine.runners.base import Eyes, Tokenizer
from proxy_inference_engine.types import ImageSpan

_OURS = frozenset({"add_generation_prompt", "bos_token", "documents", "eos_token", "messages", "tools"})
_VARIABLES = "chat_template_kwargs"
_CONTINUE = "continue_final_message"
_PROBE = "Hello"
_PROBE_PARTS = [{"type": "text", "text": _PROBE}]


@dataclass(frozen=True, slots=True)
class Prompt:
    ids: tuple[int, ...]
    text: str
    opens_reasoning: bool = False  # the template ends the prompt inside a block of reasoning
    images: tuple[ImageSpan, ...] = ()


class PromptRenderer:
    """One model's way from a conversation to token ids. Safe to use from several threads.

    1. The template renders messages and tools, then once more with every string between marks (`marks.py`).
    2. Without its marks the second text must be the first; then the spans between marks are what people wrote. For a
       template that trims, the marks go inside the white space.
    3. If people wrote control tokens, or the marks did not survive, everything is rendered with all contents covered:
       the template must then spell the same control tokens, or the request is refused.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        format: Format,
        template: str | None,
        *,
        bos_text: str | None = None,
        eos_text: str | None = None,
        eyes: Eyes | None = None,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._format = format
        source = template or format.template
        self._template = Template(source)
        self._reads_calls = "tool_calls" in source
        self._encoder = PromptEncoder(tokenizer, eyes)
        self._clock = clock
        self._eyes = eyes
        # A marker that the vocabulary lacks is never written, so every image is refused.
        self._marker_id = -1 if eyes is None else tokenizer.specials.get(eyes.marker, -1)
        names = {token_id: text for text, token_id in tokenizer.specials.items()}
        bos_ids = () if tokenizer.bos_id is None else (tokenizer.bos_id,)
        self._special_texts = {
            "bos_token": _name(names, bos_ids) if bos_text is None else bos_text,
            "eos_token": _name(names, sorted(tokenizer.end_ids)) if eos_text is None else eos_text,
        }
        self._has_parts = eyes is not None and not self._prints(_PROBE) and self._prints(_PROBE_PARTS)

    def _prints(self, content: Any) -> bool:
        """Whether the template prints a content of this shape: some with images read parts only."""
        given = {**self._special_texts, "documents": None, "tools": None, "add_generation_prompt": False}
        try:
            return _PROBE in self._template.render(
                {**given, "messages": [{"role": "user", "content": content}]}, self._clock()
            )
        except InvalidRequest:
            return False

    @property
    def variables(self) -> frozenset[str]:
        """What a request may set for the template: the names it reads and we do not fill ourselves."""
        return self._template.variables - _OURS

    @property
    def reads_tools(self) -> bool:
        """Whether the template lists tools itself; if not, the family's convention describes them in words."""
        return "tools" in self._template.variables

    def chat(
        self,
        interactions: Sequence[Interaction],
        *,
        tools: Sequence[Tool] = (),
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """The prompt of a conversation; with `continue_final` it ends right after the last message's content."""
        layout, turns = self._arrange(interactions, tools, add_generation_prompt, continue_final, variables or {})
        thinking = self._format.thinking
        opens = thinking is not None and layout.tail.rstrip().endswith(thinking.opening)
        ids = self._encoder.encode(layout.text, layout.contents)
        if self._eyes is None:
            return Prompt(ids, layout.text, opens)
        placed = place_images(ids, self._marker_id, image_parts(turns), self._eyes)
        return Prompt(placed.ids, layout.text, opens, placed.images)

    def text(
        self,
        interactions: Sequence[Interaction],
        *,
        tools: Sequence[Tool] = (),
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The text of `chat`, without computing ids."""
        return self._arrange(interactions, tools, add_generation_prompt, continue_final, variables or {}).layout.text

    def raw(self, text: str) -> Prompt:
        """A text as it is: no template, nothing in it special, BOS where the model wants one."""
        return Prompt(self._encoder.encode_plain(text), text)

    def _arrange(
        self,
        interactions: Sequence[Interaction],
        tools: Sequence[Tool],
        add_generation_prompt: bool,
        continue_final: bool,
        variables: Mapping[str, Any],
    ) -> "_Arranged":
        turns = self._format.prepare(interactions, tools, self.reads_tools, self._reads_calls)
        self._check_contents(turns)
        _check_turns(turns, add_generation_prompt, continue_final)
        self._check_variables(variables)
        now = self._clock()  # once, so that every rendering tells the same time
        given = {**variables, **self._special_texts, "documents": None, "add_generation_prompt": add_generation_prompt}
        layout = self._separate(
            Chat([self._message(turn) for turn in turns], make_tools(tools) if self.reads_tools else None),
            lambda chat: self._template.render({**given, "messages": chat.messages, "tools": chat.tools}, now),
        )
        if layout is None:
            raise self._refusal(interactions, tools)
        if not continue_final:
            return _Arranged(layout, turns)
        if calls_of(interactions[-1]):
            raise InvalidRequest("a message with calls cannot be continued", param=_CONTINUE)
        return _Arranged(_cut_after_final(layout, turns[-1].text), turns)

    def _message(self, turn: Interaction) -> Message:
        return make_message(turn, self._format, has_parts=self._has_parts)

    def _separate(self, chat: Chat, render: Callable[[Chat], str]) -> Layout | None:
        """Render, and find out what people wrote; None when that cannot be told."""
        layout = Layout(render(chat), contents=())
        if self._encoder.has_special(unmarked(chat)):
            return None
        marks = Marks(chat)
        for is_trimmed in (False, True):
            marked = _attempt(render, marks.wrap(chat, is_trimmed=is_trimmed))
            found = None if marked is None else marks.read(marked)
            if found is not None and found.text == layout.text:
                layout = found
                break
        has_special = self._encoder.has_special(strings(chat))
        if layout.contents and not has_special:
            return layout
        # A template may take a content apart and print a piece of it without its marks.
        covered = _attempt(render, marks.cover(chat))
        if covered is None:
            return None if has_special else layout
        is_safe = self._encoder.special_ids(layout.text, layout.contents) == self._encoder.special_ids(covered)
        return layout._replace(tail=marks.tail_of_covered(covered)) if is_safe else None

    def _refusal(self, interactions: Sequence[Interaction], tools: Sequence[Tool]) -> InvalidRequest:
        guilty = [
            f"{param}[{index}]"
            for param, values in (
                ("messages", [self._message(turn) for turn in interactions]),
                ("tools", make_tools(tools) or []),
            )
            for index, each in enumerate(values)
            if self._encoder.has_special(strings(each))
        ]
        return InvalidRequest(
            f"{', '.join(guilty[:8]) or 'a message'} spells a control token of this model, "
            "and its chat template cannot keep that apart from its own: remove it",
            param="tools" if guilty and guilty[0].startswith("tools") else "messages",
        )

    def _check_contents(self, turns: Sequence[Interaction]) -> None:
        known = {ContentType.TEXT} if self._eyes is None else {ContentType.TEXT, ContentType.IMAGE}
        for part in (part for turn in turns for part in turn.content if part.type not in known):
            reads = "text only" if self._eyes is None else "text and images only"
            raise InvalidRequest(f"this model reads {reads}", param=part.data.get(PARAM, "messages"))

    def _check_variables(self, variables: Mapping[str, Any]) -> None:
        for name, value in variables.items():
            if name not in self.variables:
                raise InvalidRequest(f"the chat template reads no variable {name[:64]!r}", param=_VARIABLES)
            if any(self._encoder.may_complete_special(text) for text in strings(value)):
                raise InvalidRequest(f"the value of {name!r} spells a control token", param=_VARIABLES)


class _Arranged(NamedTuple):
    layout: Layout
    turns: Sequence[Interaction]  # as the template was given them


def _check_turns(turns: Sequence[Interaction], add_generation_prompt: bool, continue_final: bool) -> None:
    if not turns:
        raise InvalidRequest("there is no message", param="messages")
    if not continue_final:
        return
    if add_generation_prompt:
        raise InvalidRequest("set add_generation_prompt to false to continue the final message", param=_CONTINUE)
    if turns[-1].role is not Role.ASSISTANT or not turns[-1].text.strip():
        raise InvalidRequest("only an assistant message with text can be continued", param=_CONTINUE)


def _attempt(render: Callable[[Chat], str], chat: Chat) -> str | None:
    """None where the template refuses marked messages, for example because a text is now too long for it."""
    try:
        return render(chat)
    except InvalidRequest:
        return None


def _cut_after_final(layout: Layout, content: str) -> Layout:
    end = layout.final_end
    if end is None:
        raise InvalidRequest("this model's chat template cannot continue a message", param=_CONTINUE)
    # Marks inside the white space: what the template left of it belongs to the content.
    space = content[len(content.rstrip()) :]
    if not layout.text[end - 1].isspace() and layout.text.startswith(space, end):
        end += len(space)
    contents = tuple(Span(each.start, min(each.end, end)) for each in layout.contents if each.start < end)
    return Layout(layout.text[:end], contents, end)


def _name(names: Mapping[int, str], token_ids: Sequence[int]) -> str:
    return next((names[token_id] for token_id in token_ids if token_id in names), "")
