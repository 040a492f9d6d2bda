"""Puts the server together: routes, and around them, from the outside in, log, failures, guard, keys."""

import socket
from collections.abc import Sequence
from dataclasses import replace

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route, WebSocketRoute

from proxy_inference_engine.config import Config, check_origins
from proxy_inference_engine.images import AllowedHosts, Fetcher, FetchLimits, ImageLimits, ImageLoader
from proxy_inference_engine.pool.pool import ModelPool
from proxy_inference_engine.pool.pulls import Pulls
from proxy_inference_engine.pool.reload import PoolReload
from proxy_inference_engine.served.model import ServedModel, Threads
from proxy_inference_engine.server.apis.admin.figures import get_cache, get_stats
from proxy_inference_engine.server.apis.admin.hub import (
    begin_pull,
    cancel_pull,
    get_fit,
    list_hub_files,
    list_pulls,
    search_hub,
    watch_pulls,
)
from proxy_inference_engine.server.apis.admin.models import (
    list_pool,
    load_model,
    pin_model,
    unload_model,
    unpin_model,
    watch_pool,
)
from proxy_inference_engine.server.apis.admin.route import (
    cancel_request,
    get_usage,
    list_requests,
    reload_config,
    reload_keys,
    stop_server,
)
from proxy_inference_engine.server.apis.batches.route import cancel_batch, create_batch, get_batch, list_batches
from proxy_inference_engine.server.apis.batches.runs import BatchRuns
from proxy_inference_engine.server.apis.chat.route import create_chat_completion
from proxy_inference_engine.server.apis.chat.stored import (
    delete_chat,
    get_chat,
    list_chat_messages,
    list_chats,
    update_chat,
)
from proxy_inference_engine.server.apis.completions.route import create_completion
from proxy_inference_engine.server.apis.embeddings.route import create_embeddings, rerank
from proxy_inference_engine.server.apis.files.route import (
    create_file,
    delete_file,
    get_file,
    get_file_content,
    list_files,
)
from proxy_inference_engine.server.apis.health import health, metrics, ready
from proxy_inference_engine.server.apis.llama_cpp.route import native_completion, native_embedding, native_infill
from proxy_inference_engine.server.apis.llama_cpp.settings import (
    lora_adapters,
    props,
    slots,
    tokenizer_info,
    transcriptions,
)
from proxy_inference_engine.server.apis.messages.errors import SHAPE as MESSAGES_SHAPE
from proxy_inference_engine.server.apis.messages.route import count_tokens, create_message
from proxy_inference_engine.server.apis.models import delete_model, get_model, list_models
from proxy_inference_engine.server.apis.ollama import models as ollama
from proxy_inference_engine.server.apis.ollama.errors import SHAPE as OLLAMA_SHAPE
from proxy_inference_engine.server.apis.ollama.route import (
    create_chat,
    create_embed,
    create_embedding,
    create_generation,
)
from proxy_inference_engine.server.apis.responses.compaction import compact
from proxy_inference_engine.server.apis.responses.conversations import (
    create_conversation,
    create_items,
    delete_conversation,
    delete_item,
    get_conversation,
    get_item,
    list_items,
    update_conversation,
)
from proxy_inference_engine.server.apis.responses.route import count_input_tokens, create_response
from proxy_inference_engine.server.apis.responses.run import ResponseRuns
from proxy_inference_engine.server.apis.responses.stored import (
    cancel_response,
    delete_response,
    get_response,
    list_input_items,
)
from proxy_inference_engine.server.apis.responses.teller import Teller
from proxy_inference_engine.server.apis.responses.websocket import connect_responses
from proxy_inference_engine.server.apis.schemas.route import check_format
from proxy_inference_engine.server.apis.shared.sealer import Sealer
from proxy_inference_engine.server.apis.tokens.route import apply_template, detokenize, tokenize
from proxy_inference_engine.server.http.access import Access, UsageBook
from proxy_inference_engine.server.http.body import Bodies, BodyBudget
from proxy_inference_engine.server.http.errors import Failures, raise_http
from proxy_inference_engine.server.http.guard import Auth, Guard
from proxy_inference_engine.server.http.inside import Inside
from proxy_inference_engine.server.http.keyring import Keyring, KeySource
from proxy_inference_engine.server.http.limits import RateLimits
from proxy_inference_engine.server.http.origins import Origins
from proxy_inference_engine.server.http.protocol import Edge
from proxy_inference_engine.server.http.proxies import Proxied, TrustedProxies
from proxy_inference_engine.server.http.sse import Patience
from proxy_inference_engine.server.metrics import Metrics
from proxy_inference_engine.server.neighbours import Neighbours
from proxy_inference_engine.server.openapi.document import get_openapi
from proxy_inference_engine.server.page.route import Playground
from proxy_inference_engine.server.state import ServerState
from proxy_inference_engine.server.tracing import Tracing, note_save
from proxy_inference_engine.server.usage import UsageKeeper
from proxy_inference_engine.store import FileLimits, Store, StoreLimits

_DAY_SECONDS = 24 * 3600
_MESSAGES = "/v1/messages"
_COUNT_TOKENS = "/v1/messages/count_tokens"
_RESPONSES = "/v1/responses"
SOCKETS = frozenset({_RESPONSES})  # the paths that take WebSockets
SHAPES = {_MESSAGES: MESSAGES_SHAPE, "/api": OLLAMA_SHAPE}


def create_app(
    models: ModelPool | Sequence[ServedModel],
    config: Config,
    *,
    threads: Threads | None = None,
    patience: Patience | None = None,
    store: Store | None = None,
    sealer: Sealer | None = None,
    tracing: Tracing | None = None,
    reload: PoolReload | None = None,
    neighbours: Neighbours | None = None,
) -> Starlette:
    """The ASGI app around a pool of models, or models that are loaded already; the first is the default.

    `store` is closed by the caller. Without one, what is stored lives as long as the app, and so does the seal.
    """
    threads = threads or Threads()
    pool = models if isinstance(models, ModelPool) else _pool_of(models, config, threads)
    limits = None if config.limits is None else RateLimits(config.limits)
    usage, kept = UsageBook(limits), store or Store.open(None, limits=store_limits(config))
    runs = ResponseRuns()
    kept.on_saved = None if tracing is None else note_save
    state = ServerState(
        pool,
        Metrics(pool.stats, usage),
        UsageKeeper(usage.by_key, kept),
        Pulls(pool, config),
        runs,
        Teller(runs, kept),
        keys=KeySource(Keyring(config.api_keys), config.api_key_file, config.api_keys),
        patience=patience or Patience(),
        store=kept,
        sealer=sealer or Sealer(),
        threads=threads,
        reload=reload,
        neighbours=neighbours,
    )
    budget = BodyBudget()
    app = Starlette(
        routes=_routes(Playground(config.mcp_servers)),
        middleware=[
            *_proxied(config),
            Middleware(Access, metrics=state.metrics, visits=state.visits, tracing=tracing),
            Middleware(Failures, shapes=SHAPES),
            *_callers(config, state.keys.keyring, limits),
            Middleware(Bodies, budget=budget, threads=threads),
        ],
        exception_handlers={HTTPException: raise_http},
    )
    # A redirect would be built from the Host header.
    app.router.redirect_slashes = False
    app.state.server = state
    inside = Inside(app.router, app, budget, threads, state.metrics, state.visits)
    app.state.batches = BatchRuns(state, inside, config, limits)
    app.state.edge = _edge(config, state)
    return app


def _pool_of(models: Sequence[ServedModel], config: Config, threads: Threads) -> ModelPool:
    pool = ModelPool.of([replace(model, threads=threads) for model in models], config.aliases)
    for model in pool.loaded():
        model.machines.warm()
    return pool


def _edge(config: Config, state: ServerState) -> Edge:
    shapes = {**SHAPES, **{config.root_path + path: shape for path, shape in SHAPES.items()}}
    proxies = TrustedProxies(config.trusted_proxies)
    sockets = SOCKETS | {config.root_path + path for path in SOCKETS}
    return Edge(state.metrics, shapes, state.patience, Origins(config.allowed_origins), proxies, sockets)


def _proxied(config: Config) -> list[Middleware]:
    if not config.trusted_proxies and not config.root_path:
        return []
    return [Middleware(Proxied, proxies=TrustedProxies(config.trusted_proxies), root_path=config.root_path)]


def _callers(config: Config, keyring: Keyring, limits: RateLimits | None) -> list[Middleware]:
    """Who may call. Raises StartupError for what would let everybody."""
    check_origins(config)
    hosts = (config.host, socket.gethostname(), *config.allowed_hosts)
    origins = Origins(config.allowed_origins)
    metrics_keyring = Keyring(() if config.metrics_key is None else (config.metrics_key,))
    return [
        Middleware(Guard, hosts=hosts, origins=origins, takes_any_host=not keyring.is_open),
        Middleware(Auth, keyring=keyring, metrics_keyring=metrics_keyring, limits=limits, leading=config.priority_keys),
    ]


def image_loader(config: Config) -> ImageLoader:
    limits = ImageLimits(config.max_images, config.max_image_bytes, config.max_image_pixels)
    if not config.fetch_images:
        return ImageLoader(limits, None)
    fetching = FetchLimits(config.max_image_bytes, total_seconds=config.image_timeout_seconds)
    return ImageLoader(limits, Fetcher(fetching, AllowedHosts(config.fetch_allow)))


def store_limits(config: Config) -> StoreLimits:
    files = FileLimits(config.max_file_bytes, config.max_file_bytes_per_key, config.max_file_bytes_in_all)
    return StoreLimits(
        max_rows=config.store_max_rows,
        ttl_seconds=config.store_ttl_days * _DAY_SECONDS,
        num_connections=config.store_connections,
        files=files,
    )


def _routes(page: Playground) -> list[BaseRoute]:
    return [
        Route("/v1/chat/completions", create_chat_completion, methods=["POST"]),
        Route("/v1/chat/completions", list_chats),
        Route("/v1/chat/completions/{completion_id}", get_chat),
        Route("/v1/chat/completions/{completion_id}", update_chat, methods=["POST"]),
        Route("/v1/chat/completions/{completion_id}", delete_chat, methods=["DELETE"]),
        Route("/v1/chat/completions/{completion_id}/messages", list_chat_messages),
        Route("/v1/completions", create_completion, methods=["POST"]),
        Route(_MESSAGES, create_message, methods=["POST"]),
        Route(_COUNT_TOKENS, count_tokens, methods=["POST"]),
        Route(_RESPONSES, create_response, methods=["POST"]),
        WebSocketRoute(_RESPONSES, connect_responses),
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
        *_batch_routes(),
        Route("/v1/embeddings", create_embeddings, methods=["POST"]),
        Route("/v1/rerank", rerank, methods=["POST"]),
        Route("/v1/models", list_models),
        Route("/v1/models/{model_id:path}", get_model),
        Route("/v1/models/{model_id:path}", delete_model, methods=["DELETE"]),
        Route("/v1/schemas/check", check_format, methods=["POST"]),
        Route("/tokenize", tokenize, methods=["POST"]),
        Route("/detokenize", detokenize, methods=["POST"]),
        Route("/apply-template", apply_template, methods=["POST"]),
        Route("/health", health),
        Route("/ready", ready),
        Route("/metrics", metrics),
        Route("/", page.get),
        Route("/page/settings.json", page.get_settings),
        Route("/page/{version}/{name}", page.get_file),
        Route("/docs", page.get_docs),
        Route("/openapi.json", get_openapi),
        *_admin_routes(),
        *_ollama_routes(),
        *_llama_routes(),
    ]


def _admin_routes() -> list[Route]:
    return [
        Route("/admin/usage", get_usage),
        Route("/admin/requests", list_requests),
        Route("/admin/requests/{request_id}/cancel", cancel_request, methods=["POST"]),
        Route("/admin/keys/reload", reload_keys, methods=["POST"]),
        Route("/admin/stats", get_stats),
        Route("/admin/cache", get_cache),
        Route("/admin/hub/search", search_hub),
        Route("/admin/hub/files", list_hub_files),
        Route("/admin/fit", get_fit),
        Route("/admin/pulls", list_pulls),
        Route("/admin/pulls", begin_pull, methods=["POST"]),
        Route("/admin/pulls/events", watch_pulls),
        Route("/admin/pulls/{pull_id}/cancel", cancel_pull, methods=["POST"]),
        Route("/admin/reload", reload_config, methods=["POST"]),
        Route("/admin/stop", stop_server, methods=["POST"]),
        Route("/admin/models", list_pool),
        Route("/admin/models/events", watch_pool),
        Route("/admin/models/{model_id:path}/load", load_model, methods=["POST"]),
        Route("/admin/models/{model_id:path}/unload", unload_model, methods=["POST"]),
        Route("/admin/models/{model_id:path}/pin", pin_model, methods=["POST"]),
        Route("/admin/models/{model_id:path}/unpin", unpin_model, methods=["POST"]),
    ]


def _batch_routes() -> list[Route]:
    return [
        Route("/v1/files", create_file, methods=["POST"]),
        Route("/v1/files", list_files),
        Route("/v1/files/{file_id}", get_file),
        Route("/v1/files/{file_id}", delete_file, methods=["DELETE"]),
        Route("/v1/files/{file_id}/content", get_file_content),
        Route("/v1/batches", create_batch, methods=["POST"]),
        Route("/v1/batches", list_batches),
        Route("/v1/batches/{batch_id}", get_batch),
        Route("/v1/batches/{batch_id}/cancel", cancel_batch, methods=["POST"]),
    ]


def _ollama_routes() -> list[Route]:
    return [
        Route("/api/chat", create_chat, methods=["POST"]),
        Route("/api/generate", create_generation, methods=["POST"]),
        Route("/api/embed", create_embed, methods=["POST"]),
        Route("/api/embeddings", create_embedding, methods=["POST"]),
        Route("/api/tags", ollama.list_tags),
        Route("/api/ps", ollama.list_loaded),
        Route("/api/version", ollama.get_version),
        Route("/api/show", ollama.show, methods=["POST"]),
        Route("/api/pull", ollama.pull, methods=["POST"]),
        Route("/api/delete", ollama.delete, methods=["DELETE"]),
        *(Route(f"/api/{name}", ollama.refuse, methods=["POST"]) for name in ("create", "copy", "push")),
        Route("/api/blobs/{digest}", ollama.refuse_blob, methods=["HEAD", "POST"]),
    ]


def _llama_routes() -> list[Route]:
    """The routes that llama.cpp's server has and OpenAI's API has not, or has elsewhere."""
    computing = {
        create_chat_completion: ["/chat/completions"],
        native_completion: ["/completion", "/completions"],
        native_infill: ["/infill"],
        native_embedding: ["/embedding", "/embeddings"],
        create_response: ["/responses"],
        rerank: ["/rerank", "/reranking", "/v1/reranking"],
        transcriptions: ["/v1/audio/transcriptions"],
    }
    telling = {
        list_models: ["/models"],
        health: ["/v1/health"],
        props: ["/props"],
        slots: ["/slots"],
        lora_adapters: ["/lora-adapters"],
        tokenizer_info: ["/tokenizer_info"],
    }
    return [
        *(Route(path, answer, methods=["POST"]) for answer, paths in computing.items() for path in paths),
        *(Route(path, answer) for answer, paths in telling.items() for path in paths),
    ]
