"""What llama.cpp's server tells about itself, of ours: /props, /slots, /lora-adapters; and vLLM's /tokenizer_info.

Read-only, and nothing of what anybody said.
"""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import NotFound, Unavailable
from proxy_inference_engine.pool.member import Member
from proxy_inference_engine.runners.base import Tokenizer
from proxy_inference_engine.served.ask import SamplingWishes
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.served.request import make_sampling
from proxy_inference_engine.server.apis.shared.route import json_response, state_of
from proxy_inference_engine.types import Limits, Request, Sampling

_NAMES = {"repetition_penalty": "repeat_penalty", "repetition_window": "repeat_last_n"}
_PLAIN = (
    *("seed", "temperature", "dynatemp_range", "dynatemp_exponent", "top_k", "top_p", "min_p", "top_n_sigma"),
    *("xtc_probability", "xtc_threshold", "typical_p", "repetition_window", "repetition_penalty"),
    *("presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base", "dry_allowed_length"),
    *("mirostat", "mirostat_tau", "mirostat_eta"),
)


def generation_settings(request: Request, stop: Sequence[str]) -> dict[str, Any]:
    """How an answer is made, in llama.cpp's words."""
    return {**_sampling(request.sampling), **_limits(request.limits), "stop": list(stop)}


def _sampling(sampling: Sampling) -> dict[str, Any]:
    found = {_NAMES.get(name, name): getattr(sampling, name) for name in _PLAIN}
    return {**found, "repeat_last_n": sampling.repetition_window or -1}  # there 0 is none, and −1 all


def _limits(limits: Limits) -> dict[str, Any]:
    return {"n_predict": limits.max_tokens, "max_tokens": limits.max_tokens, "ignore_eos": limits.ignore_eos}


def _member(http: HttpRequest) -> Member:
    """The model that a query names, or the first."""
    models = state_of(http).models
    return models.find(http.query_params.get("model") or models.members[0].id)


def _asked(http: HttpRequest) -> ServedModel:
    model = _member(http).model
    if model is None:
        raise Unavailable("The model is not loaded.")
    return model


async def props(http: HttpRequest) -> Response:
    model = _asked(http)
    answerer, info = model.answerer, model.answerer.info
    tokenizer = answerer.tokenizer
    sampling = make_sampling(SamplingWishes(seed=0), model.defaults, tokenizer, model.breakers)
    limits = Limits(model.context_tokens)
    return json_response(
        {
            "default_generation_settings": {
                "n_ctx": model.context_tokens,
                "params": {**_sampling(sampling), **_limits(limits), "seed": -1, "n_predict": -1, "stop": []},
            },
            "total_slots": answerer.stats().num_slots,
            "model_alias": model.id,
            "model_path": model.id,  # where its files lie is nobody's business
            "modalities": {"vision": answerer.image_encoder is not None, "audio": False},
            "chat_template": info.chat_template or "",
            "bos_token": _spelled(tokenizer, tokenizer.bos_id),
            "eos_token": _spelled(tokenizer, min(tokenizer.end_ids, default=None)),
            "build_info": info.fingerprint,
        }
    )


async def slots(http: HttpRequest) -> Response:
    """How many there are and how many are busy: which is whose, and what it reads, is not told."""
    model = _asked(http)
    stats = model.answerer.stats()
    return json_response(
        [
            {"id": number, "n_ctx": model.context_tokens, "speculative": False, "is_processing": number < busy}
            for busy in (stats.num_running,)
            for number in range(stats.num_slots)
        ]
    )


async def lora_adapters(http: HttpRequest) -> Response:
    """The adapters, by name. A request chooses one as its model, so none has a scale of its own."""
    adapters = _member(http).entry.config.adapters or ()
    return json_response([{"id": number, "path": name, "scale": 0.0} for number, name in enumerate(adapters)])


async def tokenizer_info(http: HttpRequest) -> Response:
    model = _asked(http)
    tokenizer, info = model.answerer.tokenizer, model.answerer.info
    return json_response(
        {
            "tokenizer_class": info.architecture,
            "vocab_size": tokenizer.num_tokens,
            "model_max_length": model.context_tokens,
            "bos_token": _spelled(tokenizer, tokenizer.bos_id) or None,
            "eos_token": _spelled(tokenizer, min(tokenizer.end_ids, default=None)) or None,
            "added_tokens_decoder": {str(id_): {"content": text} for text, id_ in tokenizer.specials.items()},
            "chat_template": info.chat_template,
        }
    )


def _spelled(tokenizer: Tokenizer, token_id: int | None) -> str:
    return "" if token_id is None else tokenizer.token_bytes(token_id).decode("utf-8", "replace")


async def transcriptions(_http: HttpRequest) -> Response:
    raise NotFound("There are no transcriptions here: no model that is served takes audio.")
