"""From what a sequence is granted to its row of a forward pass."""

import numpy as np

from proxy_inference_engine.engine.scheduler import Grant
from proxy_inference_engine.runners.base import Row


def make_row(grant: Grant) -> Row:
    sequence, num_tokens, draft_ids = grant
    assert sequence.slot is not None
    ids = sequence.ids[sequence.num_computed : sequence.num_computed + num_tokens]
    num_logits = int(sequence.num_computed + num_tokens == sequence.num_tokens)
    if len(draft_ids):
        ids, num_logits = np.concatenate([ids, draft_ids]), 1 + len(draft_ids)
    elif sequence.wants_prompt_logprobs:
        num_logits = num_tokens
    return Row(sequence.slot, sequence.num_computed, ids, num_logits, sequence.request.images, sequence.unread)


def is_wide(grant: Grant) -> bool:
    """Whether a decoding row computes more than its one token."""
    return len(grant.draft_ids) > 0 or (grant.sequence.is_decoding and grant.sequence.num_pending > 1)
