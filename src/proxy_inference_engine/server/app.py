"""Puts the server together: routes, and around them, from the outside in, log, failures, guard, keys."""

import socket

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.base import Engine
from proxy_inference_engine.formats import choose_format
from proxy_inference_engine.images import AllowedHosts, Fetcher, FetchLimits, ImageLimits, ImageLoader
from proxy_inference_engine.models.profile import profile
from proxy_inference_engine.prompt.render import PromptRenderer
from proxy_inference_engine.server.access import Access
from proxy_inference_engine.server.aliases import Aliases
from proxy_inference_engine.server.auth import Auth, Keyring
from proxy_inference_engine.server.breakers import Breakers
from proxy_inference_engine.server.convert.anthropic_errors import COUNT_TOKENS, MESSAGES, MessageErrors
from proxy_inference_engine.server.failures import Failures, raise_http
from proxy_inference_engine.server.guard import Guard
from proxy_inference_engine.server.metrics import Metrics
from proxy_inference_engine.server.routes.anthropic import count_tokens, create_message
from proxy_inference_engine.server.routes.chat import create_chat_completion
from proxy_inference_engine.server.routes.compaction import compact
from proxy_inference_engine.server.routes.completions import create_completion
from proxy_inference_engine.server.routes.conversations import (
    create_conversation,
    create_items,
    delete_conversation,
    delete_item,
    get_conversation,
    get_item,
    list_items,
    update_conversation,
)
from proxy_inference_engine.server.routes.embeddings import create_embeddings, rerank
from proxy_inference_engine.server.routes.health import health, metrics, ready
from proxy_inference_engine.server.routes.models import delete_model, get_model, list_models
from proxy_inference_engine.server.routes.responses import count_input_tokens, create_response
from proxy_inference_engine.server.routes.stored_chats import (
    delete_chat,
    get_chat,
    list_chat_messages,
    list_chats,
    update_chat,
)
from proxy_inference_engine.server.routes.stored_responses import (
    cancel_response,
    delete_response,
    get_response,
    list_input_items,
)
from proxy_inference_engine.server.routes.tokens import apply_template, detokenize, tokenize
from proxy_inference_engine.server.services import ALIAS, Services
from proxy_inference_engine.server.sse import Patience
from proxy_inference_engine.state_machine.machine import MachineBuilder, choose_spacing
from proxy_inference_engine.store import Store, StoreLimits

_DAY_SECONDS = 24 * 3600


def create_app(
    engine: Engine,
    config: Config,
    *,
    model_id: str | None = None,
    patience: Patience | None = None,
    store: Store | None = None,
) -> Starlette:
    """The ASGI app around one model. `model_id` is the name clients use; None: the model's own.

    `store` is closed by the caller; None: what is stored lives as long as the app.
    """
    services = _services(engine, config, model_id, patience, store)
    app = Starlette(
        routes=_routes(),
        middleware=[
            Middleware(Access, metrics=services.metrics),
            Middleware(Failures),
            Middleware(MessageErrors),
            Middleware(Guard, hosts=(config.host, socket.gethostname())),
            Middleware(Auth, keyring=Keyring(config.api_keys)),
        ],
        exception_handlers={HTTPException: raise_http},
    )
    # A redirect would be built from the Host header.
    app.router.redirect_slashes = False
    app.state.services = services
    return app


def _services(
    engine: Engine, config: Config, model_id: str | None, patience: Patience | None, store: Store | None
) -> Services:
    info = engine.info
    format_ = choose_format(config.format, info.chat_template, info.architecture, info.name)
    overrides = {} if config.state_sampling is None else config.state_sampling.overrides()
    defaults = profile(info.name, info.architecture, info.generation)
    spacing = choose_spacing(config.json_spacing, spaces_json=defaults.spaces_json)
    machines = MachineBuilder(format_, engine.tokenizer, spacing=spacing, tracks_states=bool(overrides))
    machines.warm()
    return Services(
        engine=engine,
        model_id=model_id or info.name,
        renderer=PromptRenderer(engine.tokenizer, format_, info.chat_template, eyes=engine.eyes),
        format=format_,
        machines=machines,
        defaults=defaults,
        metrics=Metrics(engine.stats),
        breakers=Breakers(engine.tokenizer),
        state_overrides=overrides,
        patience=patience or Patience(),
        store=store or Store.open(None, limits=store_limits(config)),
        aliases=Aliases(config.aliases, served=(model_id or info.name, ALIAS)),
        images=_image_loader(config),
    )


def _image_loader(config: Config) -> ImageLoader:
    limits = ImageLimits(config.max_images, config.max_image_bytes, config.max_image_pixels)
    if not config.fetch_images:
        return ImageLoader(limits, None)
    fetching = FetchLimits(config.max_image_bytes, total_seconds=config.image_timeout_seconds)
    return ImageLoader(limits, Fetcher(fetching, AllowedHosts(config.fetch_allow)))


def store_limits(config: Config) -> StoreLimits:
    return StoreLimits(max_rows=config.store_max_rows, ttl_seconds=config.store_ttl_days * _DAY_SECONDS)


def _routes() -> list[Route]:
    return [
        Route("/v1/chat/completions", create_chat_completion, methods=["POST"]),
        Route("/v1/chat/completions", list_chats),
        Route("/v1/chat/completions/{completion_id}", get_chat),
        Route("/v1/chat/completions/{completion_id}", update_chat, methods=["POST"]),
        Route("/v1/chat/completions/{completion_id}", delete_chat, methods=["DELETE"]),
        Route("/v1/chat/completions/{completion_id}/messages", list_chat_messages),
        Route("/v1/completions", create_completion, methods=["POST"]),
        Route(MESSAGES, create_message, methods=["POST"]),
        Route(COUNT_TOKENS, count_tokens, methods=["POST"]),
        Route("/v1/responses", create_response, methods=["POST"]),
        Route("/v1/responses/input_tokens", count_input_tokens, methods=["POST"]),
        Route("/v1/responses/compact", compact, methods=["POST"]),
        Route("/v1/responses/{response_id}", get_response),
        Route("/v1/responses/{response_id}", delete_response, methods=["DELETE"]),
        Route("/v1/responses/{response_id}/cancel", cancel_response, methods=["POST"]),
        Route("/v1/responses/{response_id}/input_items", list_input_items),
        Route("/v1/conversations", create_conversation, methods=["POST"]),
        Route("/v1/conversations/{conversation_id}", get_conversation),
        Route("/v1/conversations/{conversation_id}", update_conversation, methods=["POST"]),
        Route("/v1/conversations/{conversation_id}", delete_conversation, methods=["DELETE"]),
        Route("/v1/conversations/{conversation_id}/items", list_items),
        Route("/v1/conversations/{conversation_id}/items", create_items, methods=["POST"]),
        Route("/v1/conversations/{conversation_id}/items/{item_id}", get_item),
        Route("/v1/conversations/{conversation_id}/items/{item_id}", delete_item, methods=["DELETE"]),
        Route("/v1/embeddings", create_embeddings, methods=["POST"]),
        Route("/v1/rerank", rerank, methods=["POST"]),
        Route("/v1/models", list_models),
        Route("/v1/models/{model_id:path}", get_model),
        Route("/v1/models/{model_id:path}", delete_model, methods=["DELETE"]),
        Route("/tokenize", tokenize, methods=["POST"]),
        Route("/detokenize", detokenize, methods=["POST"]),
        Route("/apply-template", apply_template, methods=["POST"]),
        Route("/health", health),
        Route("/ready", ready),
        Route("/metrics", metrics),
    ]
