"""One choice's engine outputs to events: detokenize, cut at stop strings, align log-probabilities.

Runs on the event loop, once a token. Knows nothing of HTTP, and does not cancel: when `is_over` turns True while
the engine still generates, the caller does.
"""

import time
from collections.abc import Callable, Sequence
from typing import assert_never

from proxy_inference_engine.output.detokenizer import Detokenizer
from proxy_inference_engine.output.events import Broken, Ended, Event, PromptRead, TextDelta, TokenLogprob
from proxy_inference_engine.output.logprobs import LogprobQueue, spell
from proxy_inference_engine.output.stop import Filtered, StopFilter
from proxy_inference_engine.runners.base import Tokenizer
from proxy_inference_engine.types import Failed, Finished, FinishReason, Output, Prefilled, Timings, Token


class Pipeline:
    """Stop strings count from token number `min_tokens` on; the text before it can be no part of a match."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop: Sequence[str] = (),
        min_tokens: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokenizer = tokenizer
        self._control_ids = tokenizer.control_ids
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopFilter(stop) if stop else None
        self._min_tokens = min_tokens
        self._logprobs: LogprobQueue | None = None  # made with the first entry
        self._clock = clock
        self._made_at = self._read_at = clock()
        self._num_tokens = 0
        self._num_sent_chars = 0
        self._candidate: str | None = None
        self._candidate_tokens = 0  # tokens up to the one that completed the candidate
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """True after Ended or Broken."""
        return self._is_over

    def feed(self, output: Output) -> list[Event]:
        """The events this output brings; none once the choice is over."""
        if self._is_over:
            return []
        match output:
            case Token():
                return self._take_token(output)
            case Prefilled():
                return [self._take_prompt(output)]
            case Finished(reason, timings):
                return self._finish(reason, timings)
            case Failed(error):
                self._is_over = True
                return [Broken(error)]
            case _:
                assert_never(output)

    def _take_prompt(self, prefilled: Prefilled) -> PromptRead:
        self._read_at = self._clock()
        entries = prefilled.prompt_logprobs
        if entries is None:
            return PromptRead(prefilled.num_cached_tokens, None)
        spelled = tuple(None if entry is None else spell(entry, self._tokenizer) for entry in entries)
        return PromptRead(prefilled.num_cached_tokens, spelled)

    def _take_token(self, token: Token) -> list[Event]:
        self._num_tokens += 1
        if not token.is_visible:
            return []
        text = self._detokenizer.feed(token.id)
        if token.logprob is not None and token.id not in self._control_ids:
            if self._logprobs is None:
                self._logprobs = LogprobQueue()
            entry = spell(token.logprob, self._tokenizer)
            self._logprobs.add(self._detokenizer.start, self._detokenizer.end, entry)
        if not text:
            return []
        text, stop_str = self._filter(text)
        if stop_str is not None:
            return self._end(text, stop_str, "stop", self._measure())
        return self._send(text)

    def _filter(self, text: str) -> Filtered:
        if self._stops is None or self._num_tokens < self._min_tokens:
            return Filtered(text, None)
        filtered = self._stops.feed(text)
        if self._stops.candidate is not self._candidate:
            self._candidate = self._stops.candidate
            self._candidate_tokens = self._num_tokens
        return filtered

    def _send(self, text: str) -> list[Event]:
        if not text:
            return []
        self._num_sent_chars += len(text)
        if self._logprobs is None:
            return [TextDelta(text)]
        return [TextDelta(text, self._logprobs.take(self._num_sent_chars))]

    def _finish(self, reason: FinishReason, timings: Timings) -> list[Event]:
        text, stop_str = self._filter(self._detokenizer.finish())
        if stop_str is None and self._stops is not None:
            rest, stop_str = self._stops.finish()
            text += rest
        return self._end(text, stop_str, reason if stop_str is None else "stop", timings)

    def _end(self, text: str, stop_str: str | None, reason: FinishReason, timings: Timings) -> list[Event]:
        self._is_over = True
        self._num_sent_chars += len(text)
        logprobs: tuple[TokenLogprob, ...] = ()
        if self._logprobs is not None:
            logprobs = self._logprobs.finish(None if stop_str is None else self._num_sent_chars)
        num_tokens = self._num_tokens if stop_str is None else self._candidate_tokens
        ended = Ended(reason, stop_str, num_tokens, timings)
        return [TextDelta(text, logprobs), ended] if text or logprobs else [ended]

    def _measure(self) -> Timings:
        """Times as seen from here, for a choice that ends before the engine says so."""
        now = self._clock()
        return Timings(0.0, (self._read_at - self._made_at) * 1000, (now - self._read_at) * 1000)
