"""Walks a fresh grammar a little, at random: what is too much for the engine shows before anybody waits for it."""

import random
from time import thread_time

import llguidance

from proxy_inference_engine.state_machine.compilation import InvalidGrammar, reason_of
from proxy_inference_engine.state_machine.matcher import FREE_S

_NUM_WALKS, _NUM_STEPS = 2, 16
_NUM_FORCED_STEPS = 64  # where next to nothing is allowed, as before the arguments of a call: not what is looked for
_NUM_FORCED_TOKENS = 16
_MIN_STEPS = 4  # the first ones build what later ones find ready
_MAX_S = 0.5
_TOO_LONG = "its steps take too long"


def probe(matcher: llguidance.LLMatcher, end_ids: list[int]) -> None:
    """Raises InvalidGrammar. The same walks every time, so that the same grammar is always judged alike."""
    source = random.Random(0)
    without_end = ~sum(1 << token_id for token_id in set(end_ids))
    spent, num_steps = 0.0, 0
    for _ in range(_NUM_WALKS):
        walk = matcher.deep_copy()
        num_left, num_forced_left = _NUM_STEPS, _NUM_FORCED_STEPS
        while num_left and num_forced_left:
            began = thread_time()
            allowed = _allowed(walk) & without_end
            if not allowed:
                break
            is_forced = allowed.bit_count() <= _NUM_FORCED_TOKENS
            num_left, num_forced_left = num_left - (not is_forced), num_forced_left - is_forced
            # The last one of a few is the longest, mostly, and gets on.
            token_id = allowed.bit_length() - 1 if is_forced else _choose(allowed, source)
            if not walk.consume_token(token_id):
                raise InvalidGrammar(reason_of(walk))
            spent += thread_time() - began
            num_steps += 1
            if spent > _MAX_S or (num_steps >= _MIN_STEPS and spent > 4 * FREE_S * num_steps):
                raise InvalidGrammar(_TOO_LONG)
    if num_steps >= _MIN_STEPS and spent > FREE_S * num_steps:
        raise InvalidGrammar(_TOO_LONG)


def _allowed(walk: llguidance.LLMatcher) -> int:
    """The tokens that may come next, as bits, worked out as the engine does; none at the end."""
    walk.compute_ff_tokens()
    mask = walk.compute_bitmask()
    if walk.is_error():
        raise InvalidGrammar(reason_of(walk))
    return 0 if walk.is_stopped() else int.from_bytes(mask, "little")


def _choose(allowed: int, source: random.Random) -> int:
    """The first allowed token from a random one on."""
    start = source.randrange(allowed.bit_length())
    rest = allowed >> start
    return start + (rest & -rest).bit_length() - 1
