"""Interactions to a prompt: text for people, token ids for the engine. Knows no HTTP and no model file.

What a user writes never becomes a control token, and a harmless chat gives exactly the ids that the whole rendered
text would give.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.formats import Format, ToolPlace
from proxy_inference_engine.formats.signature import arguments_of, signature
from proxy_inference_engine.interaction import Content, ContentType, Interaction, Role, Tool, ToolCall
from proxy_inference_engine.prompt.images import PARAM, place_images
from proxy_inference_engine.prompt.template import Template
from proxy_inference_engine.prompt.user_text import (
    Chat,
    Marks,
    PromptEncoder,
    RenderedChat,
    TemplateMessage,
    TextSpan,
    strings,
    unmarked,
)
from proxy_inference_engine.runners.base import ImageEncoder, Tokenizer
from proxy_inference_engine.types import ImageSpan

# Special tokens that are found by their spelling: files name no others.
_CONVENTIONAL = {
    "<unk>": "unk_token",
    "<pad>": "pad_token",
    "[CLS]": "cls_token",
    "[MASK]": "mask_token",
    "[PAD]": "pad_token",
    "[SEP]": "sep_token",
    "[UNK]": "unk_token",
}
_OURS = frozenset(
    {"add_generation_prompt", "bos_token", "documents", "eos_token", "messages", "tools", *_CONVENTIONAL.values()}
)
_GIVEN = {ToolPlace.FUNCTIONS: frozenset({"functions", "datetime"})}
_VARIABLES = "chat_template_kwargs"
_CONTINUE = "continue_final_message"
_FIELDS = ("name", "tool_call_id")  # of an interaction, read by templates
_PROBE = "Hello"
_PROBE_PARTS = [{"type": "text", "text": _PROBE}]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation as the engine takes it: token ids, and the text they spell."""

    ids: tuple[int, ...]
    text: str
    opens_reasoning: bool = False  # the template ends the prompt inside a block of reasoning
    images: tuple[ImageSpan, ...] = ()


class PromptRenderer:
    """One model's way from a conversation to token ids. Safe to use from several threads.

    1. The template renders messages and tools, then once more with every string between marks (`user_text.py`).
    2. Without its marks the second text must be the first; then the spans between marks are what people wrote. For a
       template that trims, the marks go inside the white space.
    3. If people wrote control tokens, or the marks did not survive, everything is rendered with all contents covered:
       the template must then spell the same control tokens, or the request is refused.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        format: Format,
        template: str | Template | None,
        *,
        bos_text: str | None = None,
        eos_text: str | None = None,
        image_encoder: ImageEncoder | None = None,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._format = format
        self._template = template if isinstance(template, Template) else Template(template or format.template)
        self._reads_calls = format.reads_calls and "tool_calls" in self._template.source
        self._encoder = PromptEncoder(tokenizer, image_encoder)
        self._clock = clock
        self._image_encoder = image_encoder
        # A marker that the vocabulary lacks is never written, so every image is refused.
        self._marker_id = -1 if image_encoder is None else tokenizer.specials.get(image_encoder.marker, -1)
        given = {"bos_token": bos_text, "eos_token": eos_text}
        self._special_texts = special_texts(tokenizer) | {
            name: text for name, text in given.items() if text is not None
        }
        self._has_parts = image_encoder is not None and not self._prints(_PROBE) and self._prints(_PROBE_PARTS)

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
        return self._template.variables - _OURS - _GIVEN.get(self._format.tool_place, frozenset())

    def reads(self, name: str) -> bool:
        """Whether the template reads a variable, whoever fills it."""
        return name in self._template.variables

    @cached_property
    def opens_reasoning(self) -> bool:
        """Whether the template opens a block of reasoning at the end of a plain question."""
        try:
            return self.chat([Interaction.of(Role.USER, _PROBE)]).opens_reasoning
        except InvalidRequest:
            return False

    @property
    def writes_family(self) -> bool:
        """Whether the template is the family's own, because the model brings none."""
        return self._template.source == self._format.template

    @property
    def reads_tools(self) -> bool:
        """Whether the template lists tools itself; if not, the family's convention describes them in words."""
        place = self._format.tool_place
        return self._format.reads_tools and (place is ToolPlace.SYSTEM or place in self._template.variables)

    def chat(
        self,
        interactions: Sequence[Interaction],
        *,
        tools: Sequence[Tool] = (),
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        closes_reasoning: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """The prompt of a conversation; with `continue_final` it ends right after the last message's content.

        With `closes_reasoning`, a block of reasoning that the template opens at the end is closed, empty.
        """
        chat, images = self._arrange(interactions, tools, add_generation_prompt, continue_final, variables or {})
        thinking = self._format.thinking
        opens = thinking is not None and chat.tail.rstrip().endswith(thinking.opening)
        if opens and closes_reasoning and thinking is not None:
            # As the templates do it that have a switch.
            chat, opens = chat._replace(text=f"{chat.text.rstrip()}\n\n{thinking.closing}{thinking.gap}"), False
        ids = self._encoder.encode(chat.text, chat.contents)
        if self._image_encoder is None or not (images or self._marker_id in ids):
            return Prompt(ids, chat.text, opens)
        placed = place_images(ids, self._marker_id, images, self._image_encoder)
        return Prompt(placed.ids, chat.text, opens, placed.images)

    def text(
        self,
        interactions: Sequence[Interaction],
        *,
        tools: Sequence[Tool] = (),
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The text of a conversation's prompt, without computing ids."""
        return self._arrange(interactions, tools, add_generation_prompt, continue_final, variables or {}).chat.text

    def raw(self, text: str, *, reads_specials: bool = True, adds_bos: bool = True) -> Prompt:
        """A text as it is, without a template: what `text` returns gives the ids that `chat` does."""
        return Prompt(self._encoder.encode_raw(text, reads_specials=reads_specials, adds_bos=adds_bos), text)

    def _arrange(
        self,
        interactions: Sequence[Interaction],
        tools: Sequence[Tool],
        add_generation_prompt: bool,
        continue_final: bool,
        variables: Mapping[str, Any],
    ) -> "_Arranged":
        reads_tools = self.reads_tools
        turns = self._format.prepare(interactions, tools, reads_tools, self._reads_calls)
        images = self._images_in(turns)
        _check_turns(turns, add_generation_prompt, continue_final)
        self._check_variables(variables)
        now = self._clock()  # once, so that every rendering tells the same time
        given = {**variables, **self._special_texts, "documents": None, "add_generation_prompt": add_generation_prompt}
        # None for no tools: templates ask whether there are any in many ways, and that passes all of them.
        signatures = [signature(tool) for tool in tools] if tools and reads_tools else None
        rendered = self._separate(
            Chat([self._message(turn) for turn in turns], signatures),
            lambda chat: self._template.render(
                given | chat.variables(self._format.tool_place, now, is_absent=self._format.has_absent_tools), now
            ),
        )
        if rendered is None:
            raise self._refusal(interactions, tools)
        if not continue_final:
            return _Arranged(rendered, images)
        if interactions[-1].calls:
            raise InvalidRequest("a message with calls cannot be continued", param=_CONTINUE)
        return _Arranged(_cut_after_final(rendered, turns[-1].text), images)

    def _message(self, turn: Interaction) -> TemplateMessage:
        """A turn in the shape that Hugging Face's chat templates read."""
        format = self._format
        content: Any = _parts(turn) if self._has_parts or turn.images else turn.text
        if format.has_null_content and turn.calls and not content:
            content = None
        message = {"role": turn.role.value, "content": content}
        message |= {name: turn.metadata[name] for name in _FIELDS if name in turn.metadata}
        calls, reasoning = turn.calls, turn.metadata.get("reasoning_content")
        if reasoning:
            message[format.reasoning_field] = reasoning
            if calls and turn.text and format.is_reasoning_alone:
                message |= {"content": "", format.reasoning_field: f"{reasoning}\n\n{turn.text}"}
        return message | ({"tool_calls": [_call(call, format) for call in calls]} if calls else {})

    def _separate(self, chat: Chat, render: Callable[[Chat], str]) -> RenderedChat | None:
        """Render, and find out what people wrote; None when that cannot be found out."""
        rendered = RenderedChat(render(chat), contents=())
        if self._encoder.has_special(unmarked(chat)):
            return None
        marks = Marks(chat)
        for is_trimmed in (False, True):
            marked = _attempt(render, marks.wrap(chat, is_trimmed=is_trimmed))
            found = None if marked is None else marks.read(marked)
            if found is not None and found.text == rendered.text:
                rendered = found
                break
        has_special = self._encoder.has_special(strings(chat))
        if rendered.contents and not has_special:
            return rendered
        # A template may take a content apart and print a piece of it without its marks.
        covered = _attempt(render, marks.cover(chat))
        if covered is None:
            return None if has_special else rendered
        is_safe = self._encoder.special_ids(rendered.text, rendered.contents) == self._encoder.special_ids(covered)
        return rendered._replace(tail=marks.tail_of_covered(covered)) if is_safe else None

    def _refusal(self, interactions: Sequence[Interaction], tools: Sequence[Tool]) -> InvalidRequest:
        guilty = [
            f"{param}[{index}]"
            for param, values in (
                ("messages", [self._message(turn) for turn in interactions]),
                ("tools", [signature(tool) for tool in tools]),
            )
            for index, each in enumerate(values)
            if self._encoder.has_special(strings(each))
        ]
        return InvalidRequest(
            f"{', '.join(guilty[:8]) or 'a message'} spells a control token of this model, "
            "and its chat template cannot keep that apart from its own: remove it",
            param="tools" if guilty and guilty[0].startswith("tools") else "messages",
        )

    def _images_in(self, turns: Sequence[Interaction]) -> list[Content]:
        """The images of a conversation, in order. Raises InvalidRequest for what the model does not read."""
        parts = [part for turn in turns for part in turn.content if part.type is not ContentType.TEXT]
        for part in parts:
            if self._image_encoder is None or part.type is not ContentType.IMAGE:
                reads = "text only" if self._image_encoder is None else "text and images only"
                raise InvalidRequest(f"this model reads {reads}", param=part.data.get(PARAM, "messages"))
        return parts

    def _check_variables(self, variables: Mapping[str, Any]) -> None:
        for name, value in variables.items():
            if name not in self.variables:
                raise InvalidRequest(f"the chat template reads no variable {name[:64]!r}", param=_VARIABLES)
            if any(self._encoder.may_complete_special(text) for text in strings(value)):
                raise InvalidRequest(f"the value of {name!r} spells a control token", param=_VARIABLES)


class _Arranged(NamedTuple):
    chat: RenderedChat
    images: Sequence[Content]


def _parts(turn: Interaction) -> list[dict[str, str]]:
    """Text and images in their order; texts beside each other are one, as in a turn without images."""
    parts: list[dict[str, str]] = []
    for kind, group in groupby(turn.content, key=lambda part: part.type):
        run = list(group)
        if kind is ContentType.TEXT:
            parts.append({"type": "text", "text": "\n".join(part.text for part in run)})
        else:
            parts += [{"type": "image"} for _ in run]
    return parts


def _call(call: ToolCall, format: Format) -> dict[str, Any]:
    arguments: dict[str, Any] | str | None = arguments_of(call)
    if arguments is None:
        arguments = call.arguments
    elif format.has_text_arguments:
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": arguments}}


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


def _cut_after_final(rendered: RenderedChat, content: str) -> RenderedChat:
    end = rendered.final_end
    if end is None:
        raise InvalidRequest("this model's chat template cannot continue a message", param=_CONTINUE)
    # Marks inside the white space: what the template left of it belongs to the content.
    space = content[len(content.rstrip()) :]
    if not rendered.text[end - 1].isspace() and rendered.text.startswith(space, end):
        end += len(space)
    contents = tuple(TextSpan(each.start, min(each.end, end)) for each in rendered.contents if each.start < end)
    return RenderedChat(rendered.text[:end], contents, end)


def special_texts(tokenizer: Tokenizer) -> dict[str, str]:
    """What templates know special tokens by."""
    names = {token_id: text for text, token_id in tokenizer.specials.items()}
    bos_ids = () if tokenizer.bos_id is None else (tokenizer.bos_id,)
    texts = {name: text for text, name in _CONVENTIONAL.items() if text in tokenizer.specials}
    return texts | {"bos_token": _name(names, bos_ids), "eos_token": _name(names, sorted(tokenizer.end_ids))}


def _name(names: Mapping[int, str], token_ids: Sequence[int]) -> str:
    return next((names[token_id] for token_id in token_ids if token_id in names), "")
