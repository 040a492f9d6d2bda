"""Token counts and times of one HTTP request, from the events of all its choices."""

from collections.abc import Sequence
from typing import Any

from proxy_inference_engine.output.events import Ended, PromptRead
from proxy_inference_engine.server.generation import Step
from proxy_inference_engine.server.record import Record


class Tally:
    """Counts for streamed and whole answers alike: choices are numbered prompt * num_choices + choice."""

    def __init__(self, num_prompt_tokens: Sequence[int], num_choices: int, record: Record) -> None:
        self._num_prompt_tokens = sum(num_prompt_tokens)
        self._num_choices = num_choices
        self._num_open = len(num_prompt_tokens) * num_choices
        self._num_cached_tokens = 0
        self._num_tokens = 0
        self._num_reasoning_tokens = 0
        self._num_accepted = 0
        self._num_rejected = 0
        self._prompt_ms = 0.0
        self._predicted_ms = 0.0
        self._record = record
        record.num_prompt_tokens = self._num_prompt_tokens

    @property
    def is_complete(self) -> bool:
        return self._num_open == 0

    def feed(self, step: Step) -> None:
        for choice, event in step:
            if isinstance(event, Ended):
                self._take_end(event)
            elif isinstance(event, PromptRead) and choice % self._num_choices == 0:
                # Siblings find the prompt that the first choice computed: that is sharing, not an earlier request.
                self._num_cached_tokens += event.num_cached_tokens

    def _take_end(self, ended: Ended) -> None:
        self._num_open -= 1
        self._num_tokens += ended.num_tokens
        self._num_reasoning_tokens += ended.num_reasoning_tokens
        self._num_accepted += ended.num_accepted
        self._num_rejected += ended.num_rejected
        self._prompt_ms = max(self._prompt_ms, ended.timings.prompt_ms)
        self._predicted_ms = max(self._predicted_ms, ended.timings.predicted_ms)
        self._record.num_completion_tokens = self._num_tokens

    def usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self._num_prompt_tokens,
            "completion_tokens": self._num_tokens,
            "total_tokens": self._num_prompt_tokens + self._num_tokens,
            "prompt_tokens_details": {"cached_tokens": self._num_cached_tokens, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": self._num_reasoning_tokens,
                "audio_tokens": 0,
                "accepted_prediction_tokens": self._num_accepted,
                "rejected_prediction_tokens": self._num_rejected,
            },
        }

    def timings(self) -> dict[str, float]:
        num_computed = self._num_prompt_tokens - self._num_cached_tokens
        return {
            "prompt_ms": round(self._prompt_ms, 3),
            "prompt_per_second": _rate(num_computed, self._prompt_ms),
            "predicted_ms": round(self._predicted_ms, 3),
            "predicted_per_second": _rate(self._num_tokens, self._predicted_ms),
        }


def _rate(num_tokens: int, ms: float) -> float:
    return round(num_tokens * 1000 / ms, 3) if ms > 0 else 0.0
