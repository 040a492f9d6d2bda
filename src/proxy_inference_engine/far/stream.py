"""The outputs of one request that a far engine computes. Implements `engine.base.AnswererStream`."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence

from proxy_inference_engine.engine.base import Item
from proxy_inference_engine.engine.ledger import News
from proxy_inference_engine.errors import PARAM, EngineFailure, InvalidRequest
from proxy_inference_engine.far import images
from proxy_inference_engine.far.choice import FarChoice
from proxy_inference_engine.types import Failed, Finished, Request

_log = logging.getLogger(__name__)

_MAX_PENDING = 1024  # outputs that nobody has read; then nothing more is read from the far side


class FarStream:
    """`on_news` hears when something came, `on_end` when nothing more will. Event loop only."""

    def __init__(
        self, request: Request, choices: Sequence[FarChoice], on_news: Callable[[], None], on_end: Callable[[], None]
    ) -> None:
        self.request = request
        self._choices = choices
        self._open = set(range(len(choices)))
        self._on_news = on_news
        self._on_end = on_end
        self._items: list[Item] = []
        self._news = News()
        self._drawing: asyncio.Task[None] | None = None

    def start(self, draw: Callable[[], tuple[str, ...]] | None = None) -> None:
        """`draw` makes what is sent for images; None: there are none."""
        for choice in self._choices:
            choice.put = self._put
        if draw is None:
            self._start_all()
        else:
            self._drawing = asyncio.ensure_future(self._start_with(draw))

    async def _start_with(self, draw: Callable[[], tuple[str, ...]]) -> None:
        try:
            image_urls = await asyncio.to_thread(draw)
        except Exception:
            _log.exception("the images of %s could not be written", self.request.id)
            self.fail(Failed(EngineFailure("The images of the request could not be sent on.")))
            return
        if sum(map(len, image_urls)) * len(self._choices) > images.MAX_SENT_BYTES:
            message = f"{PARAM} has images that are too large to be sent on so many times; send smaller or fewer ones."
            self.fail(Failed(InvalidRequest(message, param="messages", code="unsupported_content")))
            return
        for choice in self._choices:
            choice.image_urls = image_urls
        self._start_all()

    def _start_all(self) -> None:
        for number, choice in enumerate(self._choices):
            if number in self._open:
                choice.start()

    @property
    def choices(self) -> list[FarChoice]:
        """The choices that are not over."""
        return [self._choices[number] for number in self._open]

    def _put(self, items: list[Item]) -> None:
        self._on_news()
        for item in items:
            if item.choice not in self._open:
                continue
            self._items.append(item)
            if isinstance(item.output, Finished):
                self._open.discard(item.choice)
            elif isinstance(item.output, Failed):  # it concerns every choice
                self._open.discard(item.choice)
                self._cancel_all()
        if not self._open:
            self._on_end()
        elif len(self._items) > _MAX_PENDING:
            for choice in self.choices:
                choice.pause()
        self._news.tell()

    def fail(self, failed: Failed) -> None:
        """End it, whatever the far side does."""
        if self._open:
            self._put([Item(min(self._open), failed)])

    def place(self) -> None:
        """Where it stands in a line far away nobody tells."""

    def cancel(self, choice: int | None = None) -> None:
        if not self._open:
            return
        if choice is None:
            self._cancel_all()
        elif choice in self._open:
            self._open.discard(choice)
            self._choices[choice].cancel()
        if not self._open:
            self._on_end()
        self._news.tell()

    def _cancel_all(self) -> None:
        for number in self._open:
            self._choices[number].cancel()
        self._open.clear()

    async def __aiter__(self) -> AsyncIterator[list[Item]]:
        while True:
            items, self._items = self._items, []
            if items:
                if len(items) > _MAX_PENDING:
                    for choice in self.choices:
                        choice.resume()
                yield items
            elif not self._open:
                return
            else:
                await self._news.wait()
