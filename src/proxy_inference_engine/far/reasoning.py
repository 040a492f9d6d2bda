"""The reasoning of one choice at an engine that cannot be told where it ends: we count, and ask for the rest anew.

What was said so far becomes a part of the prompt, which the engine has computed already, and the grammar of the rest
forces the end of the reasoning first.
"""

from collections.abc import Sequence

from proxy_inference_engine.types import ReasoningBudget


class ReasoningWatch:
    """`said` is what the choice has said; `num_cuts`, how often its reasoning had to be ended: it may begin again."""

    def __init__(self, budget: ReasoningBudget) -> None:
        self._matcher = budget.start()
        self._is_closing = bool(self._matcher.forced())  # there may be no reasoning at all
        self.num_cuts = int(self._is_closing)
        self.said: list[int] = []

    def take(self, token_ids: Sequence[int]) -> int:
        """How many of these tokens count: all, or those before an end that is due by then."""
        for number, token_id in enumerate(token_ids, 1):
            self._matcher.accept(token_id)
            self.said.append(token_id)
            is_reasoning = self._matcher.state == "reasoning"
            if self._is_closing:
                self._is_closing = is_reasoning
            elif is_reasoning and self._matcher.forced():
                self._is_closing = True
                self.num_cuts += 1
                return number
        return len(token_ids)
