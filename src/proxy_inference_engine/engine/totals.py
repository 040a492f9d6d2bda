"""What an engine has done so far."""

from dataclasses import dataclass


@dataclass(slots=True)
class Totals:
    """Counters that only grow."""

    prompt_tokens: int = 0
    prompt_tokens_cached: int = 0
    generated_tokens: int = 0
    steps: int = 0
    step_seconds: float = 0.0
    forward_seconds: float = 0.0
    failures: int = 0
    draft_tokens: int = 0  # guessed ahead and computed
    draft_tokens_accepted: int = 0
