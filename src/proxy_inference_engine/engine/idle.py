"""What fills idle time: which of its sequences a step computes, so that nobody else is kept waiting by them."""

from collections.abc import Sequence as SequenceOf

from proxy_inference_engine.engine.passes import Pace
from proxy_inference_engine.engine.sequence import Sequence


def without_rest(running: SequenceOf[Sequence], has_wanted_waiting: bool, pace: Pace) -> list[Sequence]:
    """Those that compute in this step: everybody else first, and of those that fill idle time as many as go unnoticed.

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
