"""A model loaded into this program, asked in the words of the chat API: its schema checks them, no HTTP is spoken."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.base import Answerer
from proxy_inference_engine.engine.embedding import unit_vectors
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download.model import obtain
from proxy_inference_engine.models.load import is_far, load_engine, load_far
from proxy_inference_engine.models.resolve import resolve_words
from proxy_inference_engine.models.watcher import Nobody, Watcher
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.served.stream import AnswerStream
from proxy_inference_engine.server.apis.chat.ask import Conversation, make_ask, not_honoured
from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.shared.embedding import embedding_texts
from proxy_inference_engine.server.apis.shared.fields import validate
from proxy_inference_engine.server.apis.shared.route import image_names
from proxy_inference_engine.server.app import image_loader
from proxy_inference_engine.server.http.wire import new_id

_TENANT = "program"


def make_config(model: str | None, settings: Mapping[str, Any]) -> Config:
    """Raises StartupError that names the setting."""
    try:
        return Config(**{"model": model, **settings})
    except ValidationError as error:
        first = error.errors()[0]
        raise StartupError(f"{first['loc'][0]}: {first['msg']}") from None


def fetch(config: Config, watcher: Watcher) -> str:
    """Download the configured model where it is missing, unless it is computed elsewhere; its name.

    Raises StartupError.
    """
    if is_far(config):
        return resolve_words(config.model, config.cache_dir).name
    return obtain(config, watcher).name


def check_options(options: Mapping[str, Any]) -> None:
    """Whether an answer could be asked for so, whatever the question. Raises InvalidRequest that names the option."""
    validate(ChatRequest, {"messages": [{"role": "user", "content": "?"}], **options})


class LocalModel:
    """Asked from one event loop."""

    def __init__(self, model: ServedModel) -> None:
        self.served = model

    @classmethod
    def load(cls, config: Config, watcher: Watcher | None = None) -> "LocalModel":
        """Downloads the model first where it is missing. Takes seconds or longer. Raises StartupError."""
        watcher = watcher or Nobody()
        name = fetch(config, watcher)
        answerer: Answerer = load_far(config, watcher) if is_far(config) else load_engine(config, watcher)
        try:
            return cls(ServedModel.of(answerer, config, name=name, images=image_loader(config)))
        except BaseException:
            answerer.stop()
            raise

    async def ask(self, body: Mapping[str, Any]) -> tuple[AnswerStream, tuple[str, ...]]:
        """The stream, which has to be read or cancelled, and the options without effect. Raises ClientError."""
        request = Conversation(validate(ChatRequest, dict(body)))
        ask = make_ask(request, self.served, _TENANT, new_id("chatcmpl-"))
        stream = await self.served.answer(ask)
        return stream, tuple((*not_honoured(request, self.served), *image_names(stream.skipped_images)))

    async def embed(self, texts: Sequence[str], dimensions: int | None) -> list[list[float]]:
        answerer = self.served.answerer
        info = answerer.embedding
        ids = await asyncio.to_thread(embedding_texts, list(texts), dimensions, info, answerer.tokenizer)
        vectors = await self.served.embed(ids, _TENANT)
        return [[float(number) for number in unit] for unit in unit_vectors(vectors, dimensions or len(vectors[0]))]

    def close(self) -> None:
        """Takes up to seconds."""
        self.served.close()
