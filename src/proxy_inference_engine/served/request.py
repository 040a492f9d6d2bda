"""Wishes held against a model: `Sampling`, `Limits`, and ids that its vocabulary and its context allow."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from proxy_inference_engine.errors import PARAM, ContextLengthExceeded, InvalidRequest
from proxy_inference_engine.models.profile import Profile
from proxy_inference_engine.runners.base import Tokenizer
from proxy_inference_engine.served.ask import Ask, LimitWishes, SamplingWishes
from proxy_inference_engine.types import Limits, Request, Sampling, State

_DEFAULT_BREAKERS = ("\n", ":", '"', "*")
_CACHED_STRINGS = 256
# Wishes that are values of `Sampling` as they are, and those of them that a model may have a default for.
_OTHER = frozenset({"seed", "dry_sequence_breakers", "logit_bias"})
_PLAIN = tuple(each.name for each in fields(SamplingWishes) if each.name not in _OTHER)
_DEFAULTED = tuple(name for name in _PLAIN if name in {each.name for each in fields(Profile)})


class Breakers:
    """DRY's sequence breakers: strings to the token ids that contain them.

    Scans the vocabulary once a string. Slow the first time: call it off the event loop.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._pieces: list[bytes] | None = None
        self._find = lru_cache(_CACHED_STRINGS)(self._scan)

    def ids(self, strings: Sequence[str] | None) -> frozenset[int]:
        wanted = _DEFAULT_BREAKERS if strings is None else strings
        return frozenset().union(*(self._find(string) for string in wanted))

    def _scan(self, string: str) -> frozenset[int]:
        if self._pieces is None:
            self._pieces = [self._tokenizer.token_bytes(id_) for id_ in range(self._tokenizer.num_tokens)]
        needle = string.encode()
        return frozenset(id_ for id_, piece in enumerate(self._pieces) if needle in piece)


def make_sampling(wishes: SamplingWishes, defaults: Profile, tokenizer: Tokenizer, breakers: Breakers) -> Sampling:
    """The request speaks first, then the model's own defaults, then ours. A field that `Sampling` lacks is an error."""
    bias = wishes.logit_bias or {}
    check_ids(bias, tokenizer, "logit_bias")
    values: dict[str, Any] = {name: getattr(wishes, name) for name in _PLAIN}
    for name in _DEFAULTED:
        if values[name] is None:
            values[name] = getattr(defaults, name)
    return Sampling(
        seed=secrets.randbits(63) if wishes.seed is None else wishes.seed,
        takes_any_seed=wishes.seed is None,
        dry_breakers=breakers.ids(wishes.dry_sequence_breakers) if wishes.dry_multiplier else frozenset(),
        logit_bias=MappingProxyType(bias),
        **values,
    )


def make_state_sampling(sampling: Sampling, overrides: Mapping[State, Mapping[str, Any]]) -> Mapping[State, Sampling]:
    """The operator's values, for the states that have some, in place of the request's."""
    return MappingProxyType({state: replace(sampling, **values) for state, values in overrides.items()})


def make_limits(wishes: LimitWishes, num_prompt_tokens: int, context_tokens: int, tokenizer: Tokenizer) -> Limits:
    """What is wanted beyond the context is cut to what is left of it."""
    num_left = context_tokens - num_prompt_tokens
    granted = num_left if wishes.max_tokens is None else min(wishes.max_tokens, num_left)
    if wishes.min_tokens > granted:
        raise InvalidRequest(
            f"{PARAM} is {wishes.min_tokens}, but at most {granted} tokens can be generated.", param="min_tokens"
        )
    check_ids(wishes.stop_token_ids, tokenizer, "stop_token_ids")
    return Limits(granted, wishes.min_tokens, frozenset(wishes.stop_token_ids), wishes.ignore_eos)


def check_ids(ids: Iterable[int], tokenizer: Tokenizer, param: str) -> None:
    """Refuse ids outside the vocabulary."""
    num_tokens = tokenizer.num_tokens
    if any(not 0 <= id_ < num_tokens for id_ in ids):
        raise InvalidRequest(f"{PARAM} has a token id outside the vocabulary (0 to {num_tokens - 1}).", param=param)


def check_prompt(ids: Sequence[int], context_tokens: int, param: str, *, needs_answer: bool) -> None:
    """A prompt has tokens, and leaves room for one more where an answer is wanted."""
    if not ids:
        raise InvalidRequest(f"{PARAM} has no tokens.", param=param)
    if len(ids) + needs_answer > context_tokens:
        raise ContextLengthExceeded(
            f"This model's maximum context length is {context_tokens} tokens, but the prompt has {len(ids)} tokens. "
            "Shorten it.",
            param=param,
        )


MAX_COUNTED_CHARS = 1 << 20  # that are cut only to be counted; more where the context has more room
_USUAL_CHARS = 16  # of a token; what has no more is not looked at
_SHRINKAGE = 4  # how many characters a tokenizer may make one of before it cuts
_SLACK = 2  # a beginning may be cut into more pieces than the same text within a whole


def check_text(texts: Sequence[str], tokenizer: Tokenizer, max_tokens: int, param: str) -> None:
    """Raises ContextLengthExceeded where the texts cannot have as few tokens as that."""
    least = least_tokens(texts, tokenizer, max_tokens)
    if least >= max_tokens:
        raise ContextLengthExceeded(
            f"This model's maximum context length is {max_tokens} tokens, but {PARAM} has {sum(map(len, texts))} "
            f"characters, which are more than {least} tokens. Shorten it.",
            param=param,
        )


def least_tokens(texts: Sequence[str], tokenizer: Tokenizer, max_tokens: int) -> int:
    """How many tokens the texts have at least, where that is enough to know that they are too long; else 0."""
    num_chars, num_usual = sum(map(len, texts)), _USUAL_CHARS * max_tokens
    if num_chars <= num_usual:
        return 0
    least = num_chars // (_SHRINKAGE * _longest_token(tokenizer))  # type: ignore[arg-type]  # hashed as any object
    if least < max_tokens:
        least = len(tokenizer.encode(_beginning(texts, num_usual))) // _SLACK
    return least if least >= max_tokens else 0


def check_countable(num_chars: int, context_tokens: int, param: str) -> None:
    """Raises InvalidRequest for texts too long to be cut only to be counted."""
    most = max(MAX_COUNTED_CHARS, _USUAL_CHARS * context_tokens)
    if num_chars > most:
        raise InvalidRequest(f"{PARAM} has {num_chars} characters; at most {most} are counted.", param=param)


def cut_hopeless(text: str, max_tokens: int) -> str:
    """A text but for what is surely behind the last token that matters."""
    return text[: _USUAL_CHARS * max_tokens]


def _beginning(texts: Iterable[str], num_chars: int) -> str:
    parts: list[str] = []
    for text in texts:
        parts.append(text[:num_chars])
        num_chars -= len(parts[-1])
        if not num_chars:
            break
    return "".join(parts)


@lru_cache(4)
def _longest_token(tokenizer: Tokenizer) -> int:
    return max(len(tokenizer.token_bytes(token_id)) for token_id in range(tokenizer.num_tokens))


MAX_LOGPROBS = 2_000_000


def bounded(asks: Sequence[Ask]) -> Sequence[Ask]:
    """Where a client names no limit of tokens, as many as may have log-probabilities."""
    return [_bounded(ask, len(asks)) if ask.num_top_logprobs is not None else ask for ask in asks]


def _bounded(ask: Ask, num_asks: int) -> Ask:
    if ask.limits.max_tokens is not None:
        return ask
    most = MAX_LOGPROBS // (num_asks * ask.num_choices * _width(ask, ask.num_top_logprobs))
    return replace(ask, limits=replace(ask.limits, max_tokens=max(1, most)))


def check_logprobs(asks: Sequence[Ask], requests: Sequence[Request]) -> None:
    """Refuse more log-probabilities than can be kept, before anything is computed. Raises InvalidRequest."""
    total = sum(_num_logprobs(ask, request) for ask, request in zip(asks, requests, strict=True))
    if total <= MAX_LOGPROBS:
        return
    error = InvalidRequest(
        f"{PARAM}: choices × tokens × (1 + top_logprobs) may be {MAX_LOGPROBS} at most, but they are {total}. Ask for "
        "fewer tokens, choices or alternatives.",
        param="top_logprobs",
    )
    error.rename(asks[0].name_param)
    raise error


def _num_logprobs(ask: Ask, request: Request) -> int:
    answered = request.limits.max_tokens * _width(ask, request.num_top_logprobs)
    scored = len(request.prompt_ids) * _width(ask, request.num_prompt_logprobs)
    return request.num_choices * (answered + scored)


def _width(ask: Ask, num_top: int | None) -> int:
    """How many log-probabilities are written for one token, counted as often as they are."""
    return 0 if num_top is None else (1 + num_top) * ask.num_writings
