"""The images of a request: loaded once its turns are known, and put where their URLs were. Knows no wire format.

A model without eyes takes none. In the result of a tool, which no person chose to send, it is told of them instead.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from starlette.requests import Request as HttpRequest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.images import ImageRefused
from proxy_inference_engine.interaction import Content, ContentType, Interaction, Role
from proxy_inference_engine.prompt.pictures import IMAGE, PARAM, has_images, image_parts
from proxy_inference_engine.server.convert.image_content import URL
from proxy_inference_engine.server.services import services_of
from proxy_inference_engine.server.supervise import supervise
from proxy_inference_engine.types import Image

NOTE = "[an image, which this model cannot see]"

Turns = Sequence[Interaction]


class Skipped(NamedTuple):
    """An image that the model is only told of."""

    chat: int  # of which conversation
    param: str


class Seen(NamedTuple):
    chats: list[Turns]
    skipped: Sequence[Skipped] = ()

    @property
    def ignored(self) -> list[str]:
        """What a header says of the images that were skipped; those of earlier, stored turns have one name."""
        return list(dict.fromkeys(ignored_name(each.param) for each in self.skipped))


class Unseen(InvalidRequest):
    """An image that is not taken; `chat` says of which conversation."""

    def __init__(self, part: Content, reason: str, code: str, chat: int) -> None:
        param = str(part.data[PARAM])
        super().__init__(f"Invalid value for {param!r}: {reason}.", param=param, code=code)
        self.chat = chat


class _Found(NamedTuple):
    chat: int
    part: Content
    is_new: bool  # the model has not answered since

    @property
    def url(self) -> str:
        return str(self.part.data[URL])


async def see(http: HttpRequest, *chats: Turns) -> Seen:
    """The conversations with their images loaded, equal ones once. Raises Unseen, or ClientGone while it waits."""
    services = services_of(http)
    if services.engine.eyes is None:
        return told(*chats)
    found = list(_find(chats))
    if not found:
        return Seen(list(chats))
    urls = [each.url for each in found]
    loading = services.images.load(urls, [each.is_new for each in found])
    try:
        images = await supervise(loading, http.receive, services.drain)
    except ImageRefused as refused:
        chat, part, _ = found[refused.index]
        raise Unseen(part, refused.reason, refused.code, chat) from None
    album = dict(zip(urls, images, strict=True))
    return Seen([[_seen(turn, album) if has_images(turn) else turn for turn in turns] for turns in chats])


def told(*chats: Turns) -> Seen:
    """The conversations for a model without eyes. Raises Unseen for an image that is not of a tool."""
    skipped: list[Skipped] = []
    for number, turns in enumerate(chats):
        for turn in turns:
            for part in image_parts([turn]):
                if turn.role is not Role.TOOL:
                    raise Unseen(part, "this model takes no images", "unsupported_content", number)
                skipped.append(Skipped(number, str(part.data[PARAM])))
    if not skipped:
        return Seen(list(chats))
    return Seen([[_told(turn) if has_images(turn) else turn for turn in turns] for turns in chats], skipped)


def ignored_name(param: str) -> str:
    return f"{param}:image"


def _find(chats: Sequence[Turns]) -> Iterator[_Found]:
    for number, turns in enumerate(chats):
        answers = [index for index, turn in enumerate(turns) if turn.role is Role.ASSISTANT]
        for index, turn in enumerate(turns):
            for part in image_parts([turn]):
                yield _Found(number, part, not answers or index > answers[-1])


def _told(turn: Interaction) -> Interaction:
    note = Content.of(NOTE)
    return replace(turn, content=tuple(note if part.type is ContentType.IMAGE else part for part in turn.content))


def _seen(turn: Interaction, album: Mapping[str, Image]) -> Interaction:
    return replace(turn, content=tuple(_with_image(part, album) for part in turn.content))


def _with_image(part: Content, album: Mapping[str, Image]) -> Content:
    if part.type is not ContentType.IMAGE:
        return part
    return replace(part, data={IMAGE: album[part.data[URL]], PARAM: part.data[PARAM]})
