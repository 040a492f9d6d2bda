"""The images of asks: loaded once their turns are known, and put where their URLs were.

A model that takes no images refuses them. In the result of a tool, which no person chose to send, it is told of them
instead.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from proxy_inference_engine.errors import PARAM, InvalidRequest
from proxy_inference_engine.images import ImageLoader, ImageRefused
from proxy_inference_engine.interaction import Content, ContentType, Interaction, Role
from proxy_inference_engine.prompt.images import IMAGE
from proxy_inference_engine.prompt.images import PARAM as NAME
from proxy_inference_engine.served.ask import Ask, ChatPrompt, Turns
from proxy_inference_engine.served.stream import SkippedImage
from proxy_inference_engine.types import Image

NOTE = "[an image, which this model cannot see]"
URL = "url"


def image_content(url: str, detail: str | None, param: str) -> Content:
    """How every wire format says that there is an image: where it is, and how errors name it."""
    return Content(ContentType.IMAGE, data={URL: url, "detail": detail, NAME: param})


class _Found(NamedTuple):
    ask: Ask
    part: Content
    is_new: bool  # the model has not answered since

    @property
    def url(self) -> str:
        return str(self.part.data[URL])


async def load_images(asks: Sequence[Ask], loader: ImageLoader) -> list[Ask]:
    """The asks with their images loaded, equal ones once."""
    found = [each for ask in asks for each in _find(ask)]
    urls = [each.url for each in found]
    try:
        images = await loader.load(urls, [each.is_new for each in found])
    except ImageRefused as refused:
        ask, part, _ = found[refused.index]
        raise _refusal(ask, part, refused.reason, refused.code) from None
    loaded = dict(zip(urls, images, strict=True))
    return [_with_turns(ask, [_with_images(turn, loaded) for turn in _turns(ask)]) for ask in asks]


def describe_images(asks: Sequence[Ask]) -> tuple[list[Ask], list[SkippedImage]]:
    """The asks for a model that takes no images: those in results of tools become a note, others are refused."""
    skipped: list[SkippedImage] = []
    for number, ask in enumerate(asks):
        for turn in _turns(ask):
            for part in turn.images:
                if turn.role is not Role.TOOL:
                    raise _refusal(ask, part, "this model takes no images", "unsupported_content")
                skipped.append(SkippedImage(number, ask.name_param(str(part.data[NAME]))))
    return [_with_turns(ask, [_with_note(turn) for turn in _turns(ask)]) for ask in asks], skipped


def _find(ask: Ask) -> Iterator[_Found]:
    turns = _turns(ask)
    answers = [index for index, turn in enumerate(turns) if turn.role is Role.ASSISTANT]
    for index, turn in enumerate(turns):
        for part in turn.images:
            yield _Found(ask, part, not answers or index > answers[-1])


def _turns(ask: Ask) -> Turns:
    return ask.prompt.turns if isinstance(ask.prompt, ChatPrompt) else ()


def _with_turns(ask: Ask, turns: Turns) -> Ask:
    return replace(ask, prompt=replace(ask.prompt, turns=turns)) if isinstance(ask.prompt, ChatPrompt) else ask


def _with_note(turn: Interaction) -> Interaction:
    if not turn.images:
        return turn
    note = Content.of(NOTE)
    return replace(turn, content=tuple(note if part.type is ContentType.IMAGE else part for part in turn.content))


def _with_images(turn: Interaction, loaded: Mapping[str, Image]) -> Interaction:
    if not turn.images:
        return turn
    return replace(turn, content=tuple(_with_image(part, loaded) for part in turn.content))


def _with_image(part: Content, loaded: Mapping[str, Image]) -> Content:
    if part.type is not ContentType.IMAGE:
        return part
    return replace(part, data={IMAGE: loaded[part.data[URL]], NAME: part.data[NAME]})


def _refusal(ask: Ask, part: Content, reason: str, code: str) -> InvalidRequest:
    param = ask.name_param(str(part.data[NAME]))
    return InvalidRequest(f"Invalid value for {PARAM}: {reason}.", param=param, code=code)
