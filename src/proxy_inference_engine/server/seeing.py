"""The images of a request: loaded once its turns are known, and put where their URLs were. Knows no wire format."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from starlette.requests import Request as HttpRequest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.images import ImageRefused
from proxy_inference_engine.interaction import Content, ContentType, Interaction
from proxy_inference_engine.prompt.pictures import IMAGE, PARAM, has_images, image_parts
from proxy_inference_engine.server.convert.image_content import URL
from proxy_inference_engine.server.services import services_of
from proxy_inference_engine.server.supervise import supervise
from proxy_inference_engine.types import Image

Turns = Sequence[Interaction]


class Unseen(InvalidRequest):
    """An image that is not taken; `chat` says of which conversation."""

    def __init__(self, part: Content, reason: str, code: str, chat: int) -> None:
        param = str(part.data[PARAM])
        super().__init__(f"Invalid value for {param!r}: {reason}.", param=param, code=code)
        self.chat = chat


async def see(http: HttpRequest, *chats: Turns) -> list[Turns]:
    """The conversations with their images loaded, equal ones once. Raises Unseen, or ClientGone while it waits."""
    services = services_of(http)
    found = [(number, part) for number, turns in enumerate(chats) for part in image_parts(turns)]
    if not found:
        return list(chats)
    if services.engine.eyes is None:
        raise _unseen(found[0], "this model takes no images", "unsupported_content")
    urls = [part.data[URL] for _, part in found]
    try:
        images = await supervise(services.images.load(urls), http.receive, services.drain)
    except ImageRefused as refused:
        raise _unseen(found[refused.index], refused.reason, refused.code) from None
    album = dict(zip(urls, images, strict=True))
    return [[_seen(turn, album) if has_images(turn) else turn for turn in turns] for turns in chats]


def _unseen(found: tuple[int, Content], reason: str, code: str) -> Unseen:
    chat, part = found
    return Unseen(part, reason, code, chat)


def _seen(turn: Interaction, album: Mapping[str, Image]) -> Interaction:
    return replace(turn, content=tuple(_with_image(part, album) for part in turn.content))


def _with_image(part: Content, album: Mapping[str, Image]) -> Content:
    if part.type is not ContentType.IMAGE:
        return part
    return replace(part, data={IMAGE: album[part.data[URL]], PARAM: part.data[PARAM]})
