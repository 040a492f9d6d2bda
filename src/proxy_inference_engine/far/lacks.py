"""What vLLM cannot do of what a request may ask: refused by name, before anything is sent.

The table of docs/vllm.md is this one; a test compares.
"""

from collections.abc import Callable
from typing import NamedTuple

from proxy_inference_engine.errors import PARAM, InvalidRequest
from proxy_inference_engine.types import STEP_PARAMETERS, Request, Shortcut


class Lack(NamedTuple):
    param: str  # as most of our APIs call it
    reason: str
    is_asked: Callable[[Request], bool]


def _has_grammar(request: Request) -> bool:
    constraint = request.constraint
    return constraint is not None and (constraint.grammar is not None or constraint.budget is not None)


def _has_least_reasoning(request: Request) -> bool:
    return request.constraint is not None and request.constraint.min_reasoning_tokens > 0


LACKS = (
    Lack("dry_multiplier", "vLLM has no DRY", lambda request: request.sampling.dry_multiplier != 0),
    Lack("xtc_probability", "vLLM has no XTC", lambda request: request.sampling.xtc_probability != 0),
    Lack("typical_p", "vLLM has no locally typical sampling", lambda request: request.sampling.typical_p != 1),
    Lack("top_n_sigma", "vLLM has no top-nσ", lambda request: request.sampling.top_n_sigma != 0),
    Lack("dynatemp_range", "vLLM has no dynamic temperature", lambda request: request.sampling.dynatemp_range != 0),
    Lack("mirostat", "vLLM has no mirostat", lambda request: request.sampling.mirostat != 0),
    Lack(
        "repetition_window",
        "vLLM's repetition penalty counts the whole text",
        lambda request: request.sampling.repetition_window != 0 and request.sampling.repetition_penalty != 1,
    ),
    Lack("reasoning_min_tokens", "vLLM cannot hold back the end of the reasoning", _has_least_reasoning),
    Lack(
        "min_tokens",
        "with a format, tools or a reasoning budget, vLLM would hold an end back that nothing else may follow",
        lambda request: request.limits.min_tokens > 0 and _has_grammar(request),
    ),
)

# What vLLM is told, or is done on this side. Nobody tells it of a field that is added later: so that is refused too.
_TOLD_OF_SAMPLING = Shortcut(
    *("seed", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "frequency_penalty"),
    *("presence_penalty", "logit_bias", *STEP_PARAMETERS),
)
_TOLD_OF_REQUESTS = Shortcut(
    *("id", "tenant", "prompt_ids", "sampling", "limits", "num_choices", "num_top_logprobs", "marks_forced"),
    *("num_prompt_logprobs", "constraint", "draft_ids", "pin_seconds", "priority", "images"),
)


def refuse_lacking(request: Request) -> None:
    """Raises InvalidRequest that names the first thing vLLM cannot do."""
    for lack in LACKS:
        if lack.is_asked(request):
            raise InvalidRequest(
                f"{PARAM} is not supported by this model's engine: {lack.reason}.",
                param=lack.param,
                code="unsupported_parameter",
            )
    for param in (*_TOLD_OF_SAMPLING.closing(request.sampling), *_TOLD_OF_REQUESTS.closing(request)):
        message = f"{PARAM} is not supported by this model's engine."
        raise InvalidRequest(message, param=param, code="unsupported_parameter")
