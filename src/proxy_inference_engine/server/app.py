"""Puts the server together: routes, and around them, from the outside in, log, failures, guard, keys."""

import socket

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.base import Engine
from proxy_inference_engine.formats import by_name, detect
from proxy_inference_engine.models.profile import profile
from proxy_inference_engine.prompt.render import PromptRenderer
from proxy_inference_engine.server.access import Access
from proxy_inference_engine.server.auth import Auth, Keyring
from proxy_inference_engine.server.breakers import Breakers
from proxy_inference_engine.server.failures import Failures, raise_http
from proxy_inference_engine.server.guard import Guard
from proxy_inference_engine.server.metrics import Metrics
from proxy_inference_engine.server.routes.chat import create_chat_completion
from proxy_inference_engine.server.routes.completions import create_completion
from proxy_inference_engine.server.routes.health import health, metrics, ready
from proxy_inference_engine.server.routes.models import get_model, list_models
from proxy_inference_engine.server.routes.tokens import apply_template, detokenize, tokenize
from proxy_inference_engine.server.services import Services
from proxy_inference_engine.server.sse import Patience
from proxy_inference_engine.state_machine.machine import COMPACT, SPACED, MachineBuilder


def create_app(
    engine: Engine, config: Config, *, model_id: str | None = None, patience: Patience | None = None
) -> Starlette:
    """The ASGI app around one model. `model_id` is the name clients use; None: the model's own."""
    services = _services(engine, config, model_id, patience)
    app = Starlette(
        routes=_routes(),
        middleware=[
            Middleware(Access, metrics=services.metrics),
            Middleware(Failures),
            Middleware(Guard, hosts=(config.host, socket.gethostname())),
            Middleware(Auth, keyring=Keyring(config.api_keys)),
        ],
        exception_handlers={HTTPException: raise_http},
    )
    # A redirect would be built from the Host header.
    app.router.redirect_slashes = False
    app.state.services = services
    return app


def _services(engine: Engine, config: Config, model_id: str | None, patience: Patience | None) -> Services:
    info = engine.info
    detected = detect(info.chat_template, info.architecture, info.name)
    format_ = detected if config.format is None else by_name(config.format)
    overrides = {} if config.state_sampling is None else config.state_sampling.overrides()
    spacing = COMPACT if config.json_spacing == "compact" else SPACED
    machines = MachineBuilder(format_, engine.tokenizer, spacing=spacing, tracks_states=bool(overrides))
    machines.warm()
    return Services(
        engine=engine,
        model_id=model_id or info.name,
        renderer=PromptRenderer(engine.tokenizer, format_, info.chat_template),
        format=format_,
        machines=machines,
        defaults=profile(info.name, info.architecture),
        metrics=Metrics(engine.stats),
        breakers=Breakers(engine.tokenizer),
        state_overrides=overrides,
        patience=patience or Patience(),
    )


def _routes() -> list[Route]:
    return [
        Route("/v1/chat/completions", create_chat_completion, methods=["POST"]),
        Route("/v1/completions", create_completion, methods=["POST"]),
        Route("/v1/models", list_models),
        Route("/v1/models/{model_id:path}", get_model),
        Route("/tokenize", tokenize, methods=["POST"]),
        Route("/detokenize", detokenize, methods=["POST"]),
        Route("/apply-template", apply_template, methods=["POST"]),
        Route("/health", health),
        Route("/ready", ready),
        Route("/metrics", metrics),
    ]
