"""One choice's engine outputs to events: detokenize, label, cut at stop strings and at calls that come again, align
log-probabilities.

Runs on the event loop, once a token. Knows nothing of HTTP, and does not cancel: when `is_over` turns True while
the engine still generates, the caller does.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import assert_never

from proxy_inference_engine.formats.base import Labels
from proxy_inference_engine.output.events import (
    Broken,
    Ended,
    Event,
    PromptRead,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
)
from proxy_inference_engine.output.logprobs import LogprobQueue, spell
from proxy_inference_engine.output.pieces import CallPiece, LabelledPiece, RepeatFilter, VisibleText
from proxy_inference_engine.output.stop import Filtered, StopFilter
from proxy_inference_engine.output.token_text import Detokenizer, Labelling, TokenText
from proxy_inference_engine.runners.base import Tokenizer
from proxy_inference_engine.types import Drafted, Failed, Finished, Output, Prefilled, Timings, Token


class Pipeline:
    """Stop strings count from token number `min_tokens` on; the text before it can be no part of a match.

    With labels, they act on visible content only, and never across reasoning or a call.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop: Sequence[str] = (),
        min_tokens: int = 0,
        labels: Labels | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokenizer = tokenizer
        self._control_ids = tokenizer.control_ids
        self._detokenizer = Detokenizer(tokenizer)
        self._stop = stop
        self._stops = StopFilter(stop) if stop else None
        self._labelling: Labelling | None = None
        if labels is not None and not labels.is_plain:
            self._labelling = Labelling(labels, tokenizer, needs_parts=bool(stop))
        self._has_open_text = False  # the last piece was content
        self._repeats: RepeatFilter | None = None  # made with the first call
        self._min_tokens = min_tokens
        self._logprobs: LogprobQueue | None = None  # made with the first entry
        self._clock = clock
        self._made_at = self._read_at = clock()
        self._queued_ms = 0.0
        self._num_tokens = 0
        self._sum_logprobs = 0.0
        self._num_logprobs = 0
        self._num_sent_chars = 0
        self._drafted = Drafted(0, 0)
        self._candidate: str | None = None
        self._candidate_tokens = 0  # tokens up to the one that completed the candidate
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """True after Ended or Broken."""
        return self._is_over

    @property
    def num_tokens(self) -> int:
        """How many tokens have come so far."""
        return self._num_tokens

    def feed(self, output: Output) -> list[Event]:
        """The events this output brings; none once the choice is over."""
        if self._is_over:
            return []
        match output:
            case Token():
                return self._take_token(output)
            case Prefilled():
                return [self._take_prompt(output)]
            case Drafted():
                self._drafted = output
                return []
            case Finished():
                return self._finish(output)
            case Failed(error):
                self._is_over = True
                return [Broken(error)]
            case _:
                assert_never(output)

    def _take_prompt(self, prefilled: Prefilled) -> PromptRead:
        self._read_at, self._queued_ms = self._clock(), prefilled.queued_ms
        entries = prefilled.prompt_logprobs
        if entries is None:
            return PromptRead(prefilled.num_cached_tokens, None)
        spelled = tuple(None if entry is None else spell(entry, self._tokenizer) for entry in entries)
        return PromptRead(prefilled.num_cached_tokens, spelled)

    def _take_token(self, token: Token) -> list[Event]:
        self._num_tokens += 1
        if token.logprob is not None:
            self._sum_logprobs += token.logprob.logprob
            self._num_logprobs += 1
        if not token.is_visible:
            return []
        if self._labelling is not None:
            return self._take_labelled(token, self._labelling)
        text = self._detokenizer.feed(token.id)
        if token.logprob is not None and token.id not in self._control_ids:
            if self._logprobs is None:
                self._logprobs = LogprobQueue()
            entry = spell(token.logprob, self._tokenizer)
            self._logprobs.add(self._detokenizer.start, self._detokenizer.end, entry)
        if not text:
            return []
        if self._stops is None:
            return self._send(text)
        text, stop_str = self._filter(text, self._num_tokens)
        if stop_str is not None:
            return self._end(text, stop_str, self._finished_here())
        return self._send(text)

    def _take_labelled(self, token: Token, labelling: Labelling) -> list[Event]:
        entry = None if token.logprob is None else spell(token.logprob, self._tokenizer)
        pieces = labelling.feed(token.id, self._num_tokens, entry)
        if self._logprobs is None and entry is not None and labelling.spans is not None:
            self._logprobs = labelling.spans.logprobs
        return self._show(pieces, labelling)

    def _show(self, pieces: Sequence[LabelledPiece], labelling: Labelling) -> list[Event]:
        events: list[Event] = []
        for piece in pieces:
            if isinstance(piece, VisibleText):
                events += self._show_text(labelling.parts(piece, self._num_tokens))
            else:
                if self._has_open_text:
                    events += self._interrupt(labelling)
                if not self._is_over:
                    events += self._show_piece(piece)
            if self._is_over:
                break
        return events

    def _show_piece(self, piece: ReasoningDelta | CallPiece) -> Sequence[Event]:
        if isinstance(piece, ReasoningDelta):
            return [piece]
        if self._repeats is None:
            self._repeats = RepeatFilter()
        shown = self._repeats.feed(piece)
        return self._end("", None, self._finished_here()) if self._repeats.is_repeated else shown

    def _show_text(self, parts: Sequence[TokenText]) -> list[Event]:
        self._has_open_text = True
        shown = ""
        for text, num_tokens in parts:
            text, stop_str = self._filter(text, num_tokens)
            shown += text
            if stop_str is not None:
                return self._end(shown, stop_str, self._finished_here())
        return self._send(shown)

    def _interrupt(self, labelling: Labelling) -> list[Event]:
        """Something else follows the text: nothing of it is held any longer."""
        self._has_open_text = False
        text, stop_str = self._flush()
        if stop_str is not None:
            return self._end(text, stop_str, self._finished_here())
        if labelling.spans is not None:
            labelling.spans.interrupt()
        self._num_sent_chars += len(text)
        logprobs = () if self._logprobs is None else self._logprobs.take(self._num_sent_chars)
        return [TextDelta(text, logprobs)] if text or logprobs else []

    def _filter(self, text: str, num_tokens: int) -> Filtered:
        if self._stops is None or num_tokens < self._min_tokens:
            return Filtered(text, None)
        filtered = self._stops.feed(text)
        if self._stops.candidate is not self._candidate:
            self._candidate = self._stops.candidate
            self._candidate_tokens = num_tokens
        return filtered

    def _flush(self) -> Filtered:
        """What the stop filter holds, and a fresh filter."""
        if self._stops is None:
            return Filtered("", None)
        filtered = self._stops.finish()
        self._stops = StopFilter(self._stop)
        return filtered

    def _send(self, text: str) -> list[Event]:
        if not text:
            return []
        self._num_sent_chars += len(text)
        if self._logprobs is None:
            return [TextDelta(text)]
        return [TextDelta(text, self._logprobs.take(self._num_sent_chars))]

    def _finish(self, finished: Finished) -> list[Event]:
        events: list[Event] = []
        text, stop_str = "", None
        if self._labelling is None:
            text, stop_str = self._filter(self._detokenizer.finish(), self._num_tokens)
        else:
            events = self._show(self._labelling.finish(is_cut=finished.reason == "length"), self._labelling)
            if self._is_over:
                return events
            events += self._repeats.cut() if self._repeats is not None else ()
            if self._repeats is not None and self._repeats.is_repeated:
                finished = replace(finished, reason="stop")  # all there is to say has been said
        if stop_str is None:
            rest, stop_str = self._flush()
            text += rest
        return events + self._end(text, stop_str, finished)

    def _end(self, text: str, stop_str: str | None, finished: Finished) -> list[Event]:
        self._is_over = True
        self._num_sent_chars += len(text)
        num_reasoning_tokens = 0
        if self._labelling is not None:
            num_reasoning_tokens = self._labelling.num_reasoning_tokens
            if self._labelling.spans is not None:
                self._labelling.spans.finish()
        logprobs: tuple[TokenLogprob, ...] = ()
        if self._logprobs is not None:
            logprobs = self._logprobs.finish(None if stop_str is None else self._num_sent_chars)
        num_tokens = self._num_tokens if stop_str is None else self._candidate_tokens
        mean_logprob = self._sum_logprobs / self._num_logprobs if self._num_logprobs else None
        ended = Ended(
            reason=finished.reason if stop_str is None else "stop",
            stop_str=stop_str,
            num_tokens=num_tokens,
            timings=finished.timings,
            num_reasoning_tokens=num_reasoning_tokens,
            num_accepted=finished.num_accepted,
            num_rejected=finished.num_rejected,
            num_cached_tokens=finished.num_cached_tokens,
            mean_logprob=mean_logprob,
        )
        return [TextDelta(text, logprobs), ended] if text or logprobs else [ended]

    def _finished_here(self) -> Finished:
        """The end of a choice that is over before the engine says so, with times and counts as seen from here."""
        now = self._clock()
        prompt_ms = max(0.0, (self._read_at - self._made_at) * 1000 - self._queued_ms)
        timings = Timings(self._queued_ms, prompt_ms, (now - self._read_at) * 1000)
        return Finished("stop", timings, self._drafted.num_accepted, self._drafted.num_rejected)
