"""From what a sequence is granted to its row of a forward pass."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from proxy_inference_engine.engine.scheduler import Grant
from proxy_inference_engine.runners.base import Row


def make_row(grant: Grant) -> Row:
    sequence, num_tokens, draft_ids = grant
    slot, start = sequence.slot, sequence.num_computed
    assert slot is not None
    ids = sequence.ids_from(start, num_tokens)
    num_logits = 1 if start + num_tokens == sequence.num_tokens else 0
    if len(draft_ids):
        ids, num_logits = np.concatenate([ids, draft_ids]), 1 + len(draft_ids)
    elif sequence.prompt_logprobs and sequence.wants_prompt_logprobs:
        num_logits = num_tokens
    return Row(slot, start, ids, num_logits, sequence.request.images, sequence.unread)


class Work(NamedTuple):
    num_decoding: int  # rows
    num_prompt_tokens: int


def plain_work(grants: Iterable[Grant]) -> Work | None:
    """What a pass computes; None where a decoding row of it computes more than its one token."""
    num_decoding = num_prompt_tokens = 0
    for sequence, num_tokens, draft_ids in grants:
        num_pending = sequence.num_tokens - sequence.num_computed
        if len(draft_ids) or (num_pending > 1 and sequence.is_decoding):
            return None
        if num_pending == 1:
            num_decoding += 1
        else:
            num_prompt_tokens += num_tokens
    return Work(num_decoding, num_prompt_tokens)
