"""Proves what a schema cannot: a request against this model. Wire fields in, `Sampling`, `Limits` and ids out."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from proxy_inference_engine.errors import ContextLengthExceeded, InvalidRequest
from proxy_inference_engine.models.profile import Profile
from proxy_inference_engine.runners.base import Tokenizer
from proxy_inference_engine.server.breakers import Breakers
from proxy_inference_engine.server.schemas.generating import Choosing, Generating
from proxy_inference_engine.types import Limits, Sampling, State

_USUAL_CHARS = 16  # of a token; what has no more is not looked at
_SHRINKAGE = 4  # how many characters a tokenizer may make one of before it cuts
_VOCABULARY_CHARS = 1 << 18


def make_sampling(body: Generating, defaults: Profile, tokenizer: Tokenizer, breakers: Breakers) -> Sampling:
    """The request speaks first, then the model's own defaults, then ours."""
    bias = body.logit_bias or {}
    check_ids(bias, tokenizer, "logit_bias")
    return Sampling(
        seed=secrets.randbits(63) if body.seed is None else body.seed,
        temperature=_first(body.temperature, defaults.temperature),
        top_k=defaults.top_k if body.top_k is None else body.top_k,
        top_p=_first(body.top_p, defaults.top_p),
        min_p=_first(body.min_p, defaults.min_p),
        repetition_penalty=_first(body.repetition_penalty, defaults.repetition_penalty),
        repetition_window=body.repetition_window,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        dry_multiplier=body.dry_multiplier,
        dry_base=body.dry_base,
        dry_allowed_length=body.dry_allowed_length,
        dry_breakers=breakers.ids(body.dry_sequence_breakers) if body.dry_multiplier else frozenset(),
        xtc_probability=body.xtc_probability,
        xtc_threshold=body.xtc_threshold,
        logit_bias=MappingProxyType(bias),
    )


def make_state_sampling(sampling: Sampling, overrides: Mapping[State, Mapping[str, Any]]) -> Mapping[State, Sampling]:
    """The operator's values, for the states that have some, in place of the request's."""
    return MappingProxyType({state: replace(sampling, **values) for state, values in overrides.items()})


def extra_work(body: Generating) -> int:
    """What `make_sampling` has to go through beside the prompt, in characters: DRY looks at the whole vocabulary."""
    return _VOCABULARY_CHARS if body.dry_multiplier else 0


def make_limits(
    body: Generating, max_tokens: int | None, num_prompt_tokens: int, context_tokens: int, tokenizer: Tokenizer
) -> Limits:
    """`max_tokens` None: all that is left of the context; more than that is cut to it."""
    num_left = context_tokens - num_prompt_tokens
    granted = num_left if max_tokens is None else min(max_tokens, num_left)
    if body.min_tokens > granted:
        raise InvalidRequest(
            f"'min_tokens' is {body.min_tokens}, but at most {granted} tokens can be generated.", param="min_tokens"
        )
    stop_ids = body.stop_token_ids or []
    check_ids(stop_ids, tokenizer, "stop_token_ids")
    return Limits(granted, body.min_tokens, frozenset(stop_ids), body.ignore_eos)


def num_top_logprobs(wanted: int | None, body: Choosing) -> int | None:
    """Candidates are chosen by their log-probabilities, whether the client wants to see them or not."""
    return 0 if wanted is None and body.num_candidates is not None else wanted


def check_ids(ids: Iterable[int], tokenizer: Tokenizer, param: str) -> None:
    """Refuse ids outside the vocabulary."""
    num_tokens = tokenizer.num_tokens
    if any(not 0 <= id_ < num_tokens for id_ in ids):
        raise InvalidRequest(f"{param!r} has a token id outside the vocabulary (0 to {num_tokens - 1}).", param=param)


def check_prompt(ids: Sequence[int], context_tokens: int, param: str, *, needs_answer: bool) -> None:
    """A prompt has tokens, and leaves room for one more where an answer is wanted."""
    if not ids:
        raise InvalidRequest(f"{param!r} has no tokens.", param=param)
    if len(ids) + needs_answer > context_tokens:
        raise ContextLengthExceeded(
            f"This model's maximum context length is {context_tokens} tokens, but the prompt has {len(ids)} tokens. "
            "Shorten it.",
            param=param,
        )


def check_text(num_chars: int, tokenizer: Tokenizer, context_tokens: int, param: str) -> None:
    """Before a text is cut into tokens, which for one that is far too long would keep everybody waiting."""
    if num_chars <= _USUAL_CHARS * context_tokens:
        return
    least = num_chars // (_SHRINKAGE * _longest_token(tokenizer))
    if least >= context_tokens:
        raise ContextLengthExceeded(
            f"This model's maximum context length is {context_tokens} tokens, but the prompt has {num_chars} "
            f"characters, which are more than {least} tokens. Shorten it.",
            param=param,
        )


def _longest_token(tokenizer: Tokenizer) -> int:
    return max(len(tokenizer.token_bytes(token_id)) for token_id in range(tokenizer.num_tokens))


def _first(wanted: float | None, default: float) -> float:
    return default if wanted is None else wanted
