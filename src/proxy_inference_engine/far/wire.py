"""A request as vLLM reads it, and its answer as it comes: one choice each, token ids in and out.

Two endpoints: `/inference/v1/generate`, which is made for this, and `/v1/completions` where a server lacks it.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from proxy_inference_engine.far.images import with_markers
from proxy_inference_engine.types import Logprob, Request

FarEndpoint = Literal["/inference/v1/generate", "/v1/completions"]
GENERATE: FarEndpoint = "/inference/v1/generate"
COMPLETIONS: FarEndpoint = "/v1/completions"

_MAX_SEED = (1 << 63) - 1
_LEAST_TOP_P = 1e-9  # vLLM takes no 0
# `--max-logprobs` of a vLLM that was started without it.
_MAX_LOGPROBS = 20
_NEVER = -100.0
_TOKEN_ID = "token_id:"  # how completions write a token that they are told not to spell
_END = b"[DONE]"
# A chunk with tokens and nothing else to say, which nearly all are: a fifth of the time that JSON takes. No text of
# an answer can look like this, its quotes are escaped.
_PLAIN = re.compile(rb'"choices":\[\{"index":0,"finish_reason":null,"stop_reason":null,"token_ids":\[(\d+(?:,\d+)*)\]')
# One of them with one token, and nothing before or behind it.
_ONE = re.compile(rb"data: [^\n]*?%s[^\n]*\n\n" % _PLAIN.pattern.replace(rb"(?:,\d+)*", b""))

_encode = json.JSONEncoder(separators=(",", ":")).encode

FarJson = dict[str, Any]


class AskedChoice(NamedTuple):
    """One choice of a request, for an engine that calls the model by this name."""

    request: Request
    choice: int
    model: str
    end_ids: frozenset[int]
    said: tuple[int, ...] = ()
    num_cuts: int = 0  # how often its reasoning was ended by force; what comes after that is asked for
    image_urls: tuple[str, ...] = ()  # the URLs of its images, as vLLM is to read them

    @property
    def stop_ids(self) -> frozenset[int]:
        """Every token that ends it, which nobody sees."""
        limits = self.request.limits
        return limits.stop_token_ids if self.ignores_ends else limits.stop_token_ids | self.end_ids

    @property
    def ignores_ends(self) -> bool:
        """A grammar says itself where the answer ends."""
        constraint = self.request.constraint
        return self.request.limits.ignore_eos and (constraint is None or constraint.grammar is None)

    @property
    def is_scored(self) -> bool:
        """The tokens of a prompt are scored in an answer that comes as a whole: no stream has a place for them."""
        return self.request.num_prompt_logprobs is not None

    @property
    def grammar(self) -> str | None:
        constraint = self.request.constraint
        if constraint is None:
            return None
        return constraint.budget.rest if self.num_cuts and constraint.budget is not None else constraint.grammar

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        return (*self.request.prompt_ids, *self.said) if self.said else self.request.prompt_ids

    def body(self, endpoint: FarEndpoint) -> bytes:
        write = _generate_body if endpoint == GENERATE else _completion_body
        return _encode(write(self)).encode()


def _generate_body(asked: AskedChoice) -> FarJson:
    parts = [{"type": "image_url", "url": url} for url in asked.image_urls]
    return {
        **_common(asked),
        "token_ids": with_markers(asked.prompt_ids, asked.request.images),
        "sampling_params": {**_sampling(asked), "detokenize": False},
        "reasoning_ended": True,  # the grammar knows of reasoning itself
        **({"content_parts": parts} if parts else {}),
    }


def _completion_body(asked: AskedChoice) -> FarJson:
    return {
        **_common(asked),
        **_sampling(asked),
        "prompt": asked.prompt_ids,
        "add_special_tokens": False,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }


def _common(asked: AskedChoice) -> FarJson:
    request = asked.request
    return {
        # The first part may not have heard yet that nobody wants it.
        "request_id": f"{request.id}-{f'rest{asked.num_cuts}-' if asked.num_cuts else ''}{asked.choice}",
        "model": asked.model,
        "cache_salt": _salt(request.tenant),
        **({"stream": False} if asked.is_scored else {"stream": True, "stream_options": {"include_usage": True}}),
    }


@lru_cache(1024)
def _salt(tenant: str) -> str:
    """Tenants do not share the prefix cache; every front end says the same for the same one."""
    return hashlib.sha256(f"pie\0{tenant}".encode()).hexdigest()


def _sampling(asked: AskedChoice) -> FarJson:
    request, sampling, limits = asked.request, asked.request.sampling, asked.request.limits
    values: FarJson = {
        "max_tokens": max(1, limits.max_tokens - len(asked.said)),
        "min_tokens": limits.min_tokens,
        "temperature": sampling.temperature,
        "top_p": max(sampling.top_p, _LEAST_TOP_P),
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "stop_token_ids": sorted(asked.stop_ids),
        "ignore_eos": asked.ignores_ends,
    }
    # One of its own for each request costs vLLM time: it draws for all others at once.
    if sampling.temperature > 0 and not sampling.takes_any_seed:
        values["seed"] = (sampling.seed + asked.choice) & _MAX_SEED
    bias = {str(token_id): weight for token_id, weight in sampling.logit_bias.items()}
    if asked.ignores_ends:  # vLLM would write them, and go on
        bias |= dict.fromkeys(map(str, asked.end_ids), _NEVER)
    if bias:
        values["logit_bias"] = bias
    if request.num_top_logprobs is not None:
        # The chosen token takes one of the places, also where it is not among the likeliest.
        values["logprobs"] = min(request.num_top_logprobs + 1, max(_MAX_LOGPROBS, request.num_top_logprobs))
    if request.num_prompt_logprobs is not None:
        values["prompt_logprobs"] = request.num_prompt_logprobs
    if asked.grammar is not None:
        values["structured_outputs"] = {"grammar": as_lark(asked.grammar)}
    return values


@lru_cache(256)
def as_lark(grammar: str) -> str:
    """A grammar as vLLM takes it: one text of Lark rules, with the grammars that clients wrote where they are named."""
    grammars = json.loads(grammar)["grammars"]
    main: str = grammars[0]["lark_grammar"]
    nested = {f": @{each['name']}": f": %lark {{\n{each['lark_grammar']}\n}}" for each in grammars[1:]}
    lines = main.split("\n")
    for place, line in enumerate(lines):
        name, colon, rest = line.partition(": @")
        text = nested.get(colon + rest)
        if text is not None and " " not in name:
            lines[place] = name + text
    return "\n".join(lines)


# The answer


class FarFailure(Exception):
    """What the far side says went wrong."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class FarChunk(NamedTuple):
    """What one event of the stream brings."""

    ids: list[int]
    logprobs: list[Logprob] | None = None
    reason: str | None = None  # why it ended, as vLLM says it
    num_cached_tokens: int | None = None
    num_prompt_tokens: int | None = None  # as vLLM counts them


def read_event(data: bytes, num_top: int | None) -> FarChunk | None:
    """The event in one `data:` line; None is the end of the stream. Raises FarFailure, or ValueError for what is no
    event. `num_top`: how many alternatives were asked for."""
    if num_top is None and (plain := _PLAIN.search(data)) is not None:
        return FarChunk(list(map(int, plain[1].split(b","))))
    if data == _END:
        return None
    event = json.loads(data)
    if (error := event.get("error")) is not None:
        raise _failure(error)
    choices = event["choices"]
    if not choices:
        return FarChunk([], num_cached_tokens=_num_cached(event), num_prompt_tokens=_num_prompt(event))
    choice = choices[0]
    ids, reason = choice.get("token_ids") or [], choice.get("finish_reason")
    if num_top is None or choice.get("logprobs") is None:
        return FarChunk(ids, None, reason)
    return FarChunk(ids, read_logprobs(choice["logprobs"], num_top), reason)


def only_token(data: bytes) -> int | None:
    """The token, where all that came is one whole event that says nothing else."""
    found = _ONE.fullmatch(data)
    return None if found is None else int(found[1])


class ScoredAnswer(NamedTuple):
    """What an answer brings that comes as a whole."""

    chunk: FarChunk
    prompt_logprobs: tuple[Logprob | None, ...]


def read_scored(body: bytes, request: Request) -> ScoredAnswer:
    """Raises FarFailure, or ValueError and its kin for what is no such answer."""
    said = json.loads(body)
    if (error := said.get("error")) is not None:
        raise _failure(error)
    choice, num_top = said["choices"][0], request.num_prompt_logprobs or 0
    # Completions have them with the choice.
    written = said.get("prompt_logprobs") or choice.get("prompt_logprobs")
    scores = [_prompt_logprob(*pair, num_top) for pair in zip(request.prompt_ids, written, strict=True)]
    logprobs = None
    if request.num_top_logprobs is not None:
        logprobs = read_logprobs(choice["logprobs"], request.num_top_logprobs)
    chunk = FarChunk(choice["token_ids"], logprobs, choice["finish_reason"], _num_cached(said))
    return ScoredAnswer(chunk, tuple(scores))


def _prompt_logprob(token_id: int, written: FarJson | None, num_top: int) -> Logprob | None:
    """The log-probability of one token of a prompt; the first has none."""
    if written is None:
        return None
    found = {int(each): value["logprob"] for each, value in written.items()}
    return Logprob(token_id, found[token_id], _likeliest(found, num_top))


def _num_cached(event: FarJson) -> int | None:
    details = (event.get("usage") or {}).get("prompt_tokens_details") or {}
    found = details.get("cached_tokens")
    return found if isinstance(found, int) else None


def _num_prompt(event: FarJson) -> int | None:
    found = (event.get("usage") or {}).get("prompt_tokens")
    return found if isinstance(found, int) else None


def _failure(error: Any) -> FarFailure:
    if not isinstance(error, Mapping):
        return FarFailure(500, str(error))
    code = error.get("code")
    return FarFailure(code if isinstance(code, int) else 500, str(error.get("message") or "no reason given"))


def read_failure(status: int, body: bytes) -> FarFailure:
    """What an answer that is no stream says."""
    try:
        said = json.loads(body)
        found = said.get("error") or said.get("detail") or said.get("message")
    except (ValueError, AttributeError):
        found = None
    message = found.get("message") if isinstance(found, Mapping) else found
    return FarFailure(status, message if isinstance(message, str) else f"status {status}")


def read_logprobs(written: FarJson, num_top: int) -> list[Logprob]:
    """One for each token of a chunk, of either endpoint."""
    if "content" in written:
        return [_logprob(entry, num_top) for entry in written["content"]]
    tops = written.get("top_logprobs") or [None] * len(written["tokens"])
    pairs = zip(written["tokens"], written["token_logprobs"], tops, strict=True)
    return [_spelled_logprob(token, logprob, top or {}, num_top) for token, logprob, top in pairs]


def _logprob(entry: FarJson, num_top: int) -> Logprob:
    found = {each["token_id"]: each["logprob"] for each in entry["top_logprobs"]}
    return Logprob(entry["token_id"], entry["logprob"], _likeliest(found, num_top))


def _spelled_logprob(token: str, logprob: float | None, top: Mapping[str, float], num_top: int) -> Logprob:
    found = {int(text.removeprefix(_TOKEN_ID)): value for text, value in top.items()}
    chosen = -math.inf if logprob is None else logprob
    return Logprob(int(token.removeprefix(_TOKEN_ID)), chosen, _likeliest(found, num_top))


def _likeliest(found: Mapping[int, float], num_top: int) -> tuple[tuple[int, float], ...]:
    return tuple(sorted(found.items(), key=lambda pair: -pair[1])[:num_top])
