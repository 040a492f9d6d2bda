"""Walks one choice's output: the grammar says what may come next, the tracker where in the answer it stands.

The tracker reads the tokens alone, and holds the reasoning to its least and most tokens.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, thread_time

import llguidance
import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.state_machine.vocabulary import GrammarVocabulary
from proxy_inference_engine.state_machine.watch import ValueWatch
from proxy_inference_engine.types import State

# A token. Of 340,000 steps of real schemas one in a thousand takes 0.8 ms; the slowest schema, 3 ms over some tokens.
FREE_S = 0.005
MAX_OWED_S = 0.25
_SLOW_S = 0.002
_NUM_WATCHED = 32  # tokens in a row that owe nothing, and it is trusted again


class StepClock:
    """Every token pays for some of the processor's time, and a little may be owed: a moment is forgiven, a habit not.

    Steps are timed by the wall until one is slow, which may be another process's doing. Then the thread's own clock
    counts for a while, which tells, but is slow to ask.
    """

    __slots__ = ("_num_watched", "_owed_s", "now")

    def __init__(self) -> None:
        self.now: Callable[[], float] = perf_counter  # ask it when a step begins
        self._num_watched = 0  # tokens left that the thread's own clock is asked for
        self._owed_s = 0.0

    def is_over(self, began: float) -> bool:
        """A step has ended. Whether that was one too many."""
        spent = self.now() - began
        if self._num_watched:
            self._owed_s += spent
            return self._owed_s > MAX_OWED_S
        if spent > _SLOW_S:
            self.now, self._num_watched = thread_time, _NUM_WATCHED
        return False

    def pay(self) -> None:
        """A token was taken."""
        if not self._num_watched:
            return
        self._owed_s = max(0.0, self._owed_s - FREE_S)
        self._num_watched = self._num_watched - 1 if self._owed_s == 0.0 else _NUM_WATCHED
        if not self._num_watched:
            self.now = perf_counter


_MAX_CHAR_BYTES = 4
# What llguidance says when one of its limits is reached: it has no other way to tell.
_OVER_LIMITS = ("Too many items", "too many expressions", "too many states", "Current row has")


class GrammarFailure(Exception):
    """The grammar was given a token it never allowed, or failed by itself. Ends one request only."""


class GrammarTooComplex(GrammarFailure):
    """The client's grammar went over its limits, or its steps take too long for those who share the engine."""


@dataclass(frozen=True, slots=True)
class Route:
    """The way of one request's answers: [reasoning] → text or a structure → calls. Texts are the family's markers."""

    answer: State
    starts_in_reasoning: bool = False
    opening: str | None = None  # of a reasoning that the model may open itself, at the very start
    closing: str | None = None
    call_opening: str | None = None
    call_preamble: str = ""  # may stand before the first call, means nothing
    is_call_at_start: bool = False  # a call opens at the start of the answer or not at all
    is_call_in_reasoning: bool = True  # a call's opening ends the reasoning
    starts_in_call: bool = False
    min_reasoning_tokens: int = 0
    max_reasoning_tokens: int | None = None


class Tracker:
    """Where in its answer a choice stands.

    Fed with every token. Marker tokens are known by their ids; markers that are text are looked for in the bytes.
    """

    def __init__(self, route: Route, vocabulary: GrammarVocabulary) -> None:
        self._route = route
        self._vocabulary = vocabulary
        self._tail = b""  # the last bytes since the state began
        self._is_at_start = True  # nothing but white space since the answer began
        self._num_reasoning = 0
        self._closing_left: list[int] | None = None
        self.state: State = route.answer
        if route.starts_in_reasoning:
            self.state = "reasoning"
        elif route.starts_in_call:
            self.state = "tool_call"

    def feed(self, token_id: int) -> None:
        if self._closing_left and self._closing_left[0] == token_id:
            del self._closing_left[0]
        if self.state == "tool_call":  # nothing comes after calls
            return
        if self.state == "reasoning":
            self._num_reasoning += 1
        self._tail = (self._tail + self._vocabulary.tokenizer.token_bytes(token_id))[-256:]
        self._turn(token_id)

    def _turn(self, token_id: int) -> None:
        """Enter the next state where a marker is complete."""
        route = self._route
        if self.state == "reasoning":
            if self._ends_with(route.closing, token_id):
                self._enter(route.answer)
                self._is_at_start = True
            elif route.is_call_in_reasoning and self._ends_with(route.call_opening, token_id):
                self._enter("tool_call")
            return
        if self._is_at_start and self._ends_with(route.opening, token_id):
            self._enter("reasoning")
        elif (self._is_at_start or not route.is_call_at_start) and self._ends_with(route.call_opening, token_id):
            self._enter("tool_call")
        elif self._is_at_start and not self._may_open():
            self._is_at_start = False

    def _enter(self, state: State) -> None:
        self.state = state
        if state == "reasoning":
            self._closing_left = None
        self._tail = b""

    def _ends_with(self, marker: str | None, token_id: int) -> bool:
        if marker is None:
            return False
        own_id = self._vocabulary.markers.get(marker)
        if own_id is not None:
            return token_id == own_id
        return marker.encode() in self._tail

    def _may_open(self) -> bool:
        """Whether what came so far could still become a marker at the start."""
        begun, preamble = self._tail.lstrip(), self._route.call_preamble.encode()
        if preamble.startswith(begun):
            return True
        begun = begun.removeprefix(preamble)
        markers = (self._route.opening, self._route.call_opening)
        return any(marker is not None and marker.encode().startswith(begun) for marker in markers)

    # The bounds of reasoning

    def held_ids(self) -> NDArray[np.intp] | None:
        """Tokens that would end the reasoning too early."""
        route = self._route
        if self.state != "reasoning" or route.closing is None or self._num_reasoning >= route.min_reasoning_tokens:
            return None
        held = self._vocabulary.completing(route.closing, self._tail)
        if route.call_opening is None or not route.is_call_in_reasoning:
            return held
        return np.union1d(held, self._vocabulary.completing(route.call_opening, self._tail))

    def due_closing(self) -> list[int]:
        """The closing marker's tokens, once the reasoning has had all it may have."""
        if self._closing_left:
            return self._closing_left.copy()
        most, closing = self._route.max_reasoning_tokens, self._route.closing
        if self.state != "reasoning" or most is None or closing is None or self._closing_left is not None:
            return []
        if self._num_reasoning < most or not _is_whole(self._tail):
            return []
        self._closing_left = self._vocabulary.encode(closing)
        return self._closing_left.copy()


def _is_whole(data: bytes) -> bool:
    """Whether the last character is complete."""
    for back in range(1, min(_MAX_CHAR_BYTES, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            return True
        if byte >= 0xC0:
            return back >= (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4)
    return True


class RootMatcher:
    """Implements `types.Matcher`. `grammar` None: only the reasoning is bounded."""

    __slots__ = (
        "_address",
        "_allowed",
        "_bits",
        "_clock",
        "_forced_left",
        "_grammar",
        "_is_stopped",
        "_num_tokens",
        "_tracker",
        "_watch",
    )

    def __init__(
        self,
        grammar: llguidance.LLMatcher | None,
        tracker: Tracker | None,
        num_tokens: int,
        watch: ValueWatch | None = None,
    ) -> None:
        self._grammar = grammar
        self._tracker = tracker
        self._watch = watch
        self._num_tokens = num_tokens
        self._bits = np.zeros((num_tokens + 31) // 32 * 4, np.uint8)
        self._address = self._bits.ctypes.data  # asked for once: it costs more than all else here
        self._allowed: NDArray[np.bool_] | None = None  # of the next token; None: not worked out yet
        self._is_stopped: bool | None = None  # None: not asked yet
        self._forced_left: deque[int] = deque()  # of the run found last
        self._clock = StepClock()

    @property
    def state(self) -> State:
        return "text" if self._tracker is None else self._tracker.state

    @property
    def is_complete(self) -> bool:
        if self._is_stopped is None:
            self._is_stopped = self._grammar is not None and self._grammar.is_stopped()
        return self._is_stopped

    def prepare(self) -> None:
        if self._grammar is not None and not self.is_complete:
            self._work_out(self._grammar)

    def mask(self) -> NDArray[np.bool_] | None:
        held = None if self._tracker is None else self._tracker.held_ids()
        if self._grammar is None:
            return None if held is None else self._without(np.ones(self._num_tokens, np.bool_), held)
        allowed = self._work_out(self._grammar)
        if self._watch is not None:
            allowed = self._watched(self._watch, allowed)
        return allowed if held is None else self._without(allowed, held)

    def forced(self) -> list[int]:
        if self._tracker is not None and (closing := self._tracker.due_closing()):
            return closing
        if self._grammar is None:
            return []
        if not self._forced_left:
            began = self._clock.now()
            self._forced_left.extend(self._grammar.compute_ff_tokens())
            self._check(began)
        return list(self._forced_left)

    def accept(self, token_id: int) -> None:
        self._allowed = self._is_stopped = None
        if self._forced_left and self._forced_left.popleft() != token_id:
            self._forced_left.clear()
        if self._grammar is not None:
            began = self._clock.now()
            if not self._grammar.consume_token(token_id):
                raise _failure(self._grammar)
            if self._watch is not None:
                self._watch.feed(token_id)
            self._clock.is_over(began)  # the next mask would tell; a token that was taken is taken
            self._clock.pay()
        if self._tracker is not None:
            self._tracker.feed(token_id)

    def _work_out(self, grammar: llguidance.LLMatcher) -> NDArray[np.bool_]:
        if self._allowed is None:
            began = self._clock.now()
            grammar.unsafe_compute_mask_ptr(self._address, self._bits.nbytes)
            self._check(began)
            bits = np.unpackbits(self._bits, count=self._num_tokens, bitorder="little")
            self._allowed = bits.view(np.bool_)
        return self._allowed

    def _check(self, began: float) -> None:
        assert self._grammar is not None
        is_over = self._clock.is_over(began)
        if self._grammar.is_error():
            raise _failure(self._grammar)
        if is_over:
            raise GrammarTooComplex("its steps take too long")

    def _watched(self, watch: ValueWatch, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """A key once more is better than no end; items that have to differ are never equal."""
        began = self._clock.now()
        if wrong := watch.wrong_ids(allowed):
            allowed = allowed.copy()
            allowed[wrong] = False
            if not allowed.any():
                raise GrammarFailure("nothing is left that could come between items that differ")
        held = watch.held_ids(allowed)
        self._check(began)  # many keys or items are the client's doing, as a grammar is
        return self._without(allowed, np.array(held, np.intp)) if held else allowed

    @staticmethod
    def _without(allowed: NDArray[np.bool_], held: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Hold tokens back, unless nothing else is left."""
        freed = allowed.copy()
        freed[held] = False
        return freed if freed.any() else allowed


def _failure(grammar: llguidance.LLMatcher) -> GrammarFailure:
    """What llguidance's limits ended is the client's doing; anything else, a token that was not allowed, is ours."""
    reason = grammar.get_error() or "a token that was not allowed"
    is_too_much = any(words in reason for words in _OVER_LIMITS)
    return GrammarTooComplex(reason) if is_too_much else GrammarFailure(reason)
