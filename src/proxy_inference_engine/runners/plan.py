"""How KV memory is divided: a wide lane of many short slots, and long lanes of one slot, made when first needed."""

from collections.abc import Callable

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.base import Lane

KV_SHARE = 0.4  # of what is free once the weights are loaded; the rest is for a pass, and for what others do
_WIDE_TOKENS = 2048
_MIN_WIDE_TOKENS = 512
_MAX_LONG_LANES = 4
_MIN_CONTEXT = 2048  # tokens; rather than give less, say that memory is short
_PAD = 256  # llama.cpp rounds a stream up to this, and MLX grows its arrays by it


def choose_context(
    wanted: int | None, known: int, token_bytes: int, max_bytes: int, report: Callable[[str], None]
) -> int:
    """The context to use: what was asked for, at most what the model knows; else all that it knows, or what half of
    the memory holds."""
    if wanted:
        if wanted > known:
            report(f"context of {known:,} tokens: the model knows no more")
        return min(wanted, known)
    if known * token_bytes <= max_bytes:
        return known
    fitting = min(known, max(_MIN_CONTEXT, max_bytes // 2 // token_bytes // _PAD * _PAD))
    if fitting < known:
        report(f"context of {fitting:,} tokens; the model knows {known:,}, memory is short (--context, --kv-memory)")
    return fitting


def plan_lanes(*, context_tokens: int, num_slots: int, token_bytes: int, max_bytes: int) -> tuple[Lane, ...]:
    """Lanes that fit `max_bytes`, giving up slot length first, then slots; the full context is always kept."""
    context_tokens = -(-context_tokens // _PAD) * _PAD
    wide = min(context_tokens, _WIDE_TOKENS)
    reserve = context_tokens * token_bytes if wide < context_tokens else 0  # one long lane at least
    if context_tokens * token_bytes > max_bytes:
        needed, there = context_tokens * token_bytes >> 20, max_bytes >> 20
        raise StartupError(
            f"a context of {context_tokens} tokens needs {needed} MiB of KV memory, {there} MiB are there: "
            "lower --context or raise --kv-memory"
        )
    while wide > _MIN_WIDE_TOKENS and reserve + num_slots * wide * token_bytes > max_bytes:
        wide = max(_MIN_WIDE_TOKENS, wide // 2 // _PAD * _PAD)
        reserve = context_tokens * token_bytes
    while num_slots > 1 and reserve + num_slots * wide * token_bytes > max_bytes:
        num_slots -= 1
    if reserve + num_slots * wide * token_bytes > max_bytes or wide >= context_tokens:
        return (Lane(num_slots, context_tokens),)
    num_long = (max_bytes - num_slots * wide * token_bytes) // (context_tokens * token_bytes)
    return (Lane(num_slots, wide), *[Lane(1, context_tokens)] * min(_MAX_LONG_LANES, num_long))
