"""What only some sequences are granted: prompts that are scored, guesses of what follows, and what fills idle time."""

import math
from collections.abc import Sequence as SequenceOf

from proxy_inference_engine.cache.slots import Slots
from proxy_inference_engine.engine.drafts.speculation import NO_DRAFT
from proxy_inference_engine.engine.passes import Pace
from proxy_inference_engine.engine.sequence import Grant, Sequence
from proxy_inference_engine.runners.base import TokenIds

_ECHO_CHUNK = 48


def with_drafts(grants: list[Grant], room: int, slots: Slots) -> list[Grant]:
    """Add guesses to grants: each may use its share of the room, rounded up, and what those before it left."""
    drafted = []
    for index, grant in enumerate(grants):
        draft_ids = _draft(grant, math.ceil(room / (len(grants) - index)), slots)
        room -= len(draft_ids)
        drafted.append(grant._replace(draft_ids=draft_ids))
    return drafted


def _draft(grant: Grant, share: int, slots: Slots) -> TokenIds:
    sequence, num_tokens, _ = grant
    if sequence.drafter is None or not sequence.is_prefilled or num_tokens < sequence.num_pending:
        return NO_DRAFT
    assert sequence.slot is not None
    slot_room = slots.capacity(sequence.slot) - sequence.num_tokens
    # One token is chosen anyway, after the last one that is right.
    answer_room = sequence.max_length - sequence.num_tokens - 1
    return sequence.drafter.propose(sequence.ids, min(share, slot_room, answer_room))


def echo_grants(computing: SequenceOf[Sequence], max_logits: int) -> list[Grant]:
    """Prompts whose every token is scored go in chunks of one size, whoever else is there.

    The size of a chunk shows in the last digits of the logits, and a score must not depend on the traffic. Logits
    of a step are limited; at least the oldest of these prompts gets on.
    """
    echoes = [seq for seq in computing if seq.num_pending > 1 and seq.wants_prompt_logprobs]
    num_logits = max_logits - (len(computing) - len(echoes))
    grants: list[Grant] = []
    for sequence in echoes:
        num_tokens = min(_ECHO_CHUNK, sequence.num_pending)
        if num_tokens > num_logits and grants:
            break
        num_tokens = min(num_tokens, max(1, num_logits))
        grants.append(Grant(sequence, num_tokens))
        num_logits -= num_tokens
    return grants


def without_rest(running: SequenceOf[Sequence], has_wanted_waiting: bool, pace: Pace) -> list[Sequence]:
    """The sequences that compute in this step: of those that fill idle time only as many as nobody else notices.

    None of them while somebody waits for a slot or reads a prompt. Beside answers, rows that cost hardly anything and
    one prompt, if there is time for it; alone, as many as a short step has.
    """
    wanted = [sequence for sequence in running if not sequence.fills_idle]
    if has_wanted_waiting or not all(sequence.is_decoding for sequence in wanted):
        return wanted
    idle = [sequence for sequence in running if sequence.fills_idle]
    num_rows = pace.num_rows_beside(len(wanted))
    if not wanted:
        return idle[:num_rows]
    rows = [sequence for sequence in idle if sequence.is_decoding][:num_rows]
    prompts = [sequence for sequence in idle if not sequence.is_decoding]
    return [*wanted, *rows, *(prompts[:1] if has_time_for_prompts(running, pace) else [])]


def has_time_for_prompts(running: SequenceOf[Sequence], pace: Pace) -> bool:
    """Whether a prompt that fills idle time would be computed now."""
    wanted = [sequence for sequence in running if not sequence.fills_idle]
    if not all(sequence.is_decoding for sequence in wanted):
        return False
    return not wanted or pace.num_tokens_beside(len(wanted)) > 0
