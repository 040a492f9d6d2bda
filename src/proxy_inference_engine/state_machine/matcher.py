"""Walks one choice's output: the grammar says what may come next, the tracker where in the answer it stands."""

from collections import deque
from time import perf_counter

import llguidance
import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.state_machine.tracker import Tracker
from proxy_inference_engine.types import State

_MAX_STEP_S = 1.0
_MAX_SLOW_STEPS = 1  # once may be another process's doing; the thread's own clock would tell, but is slow to ask


class GrammarFailure(Exception):
    """The grammar went over its limits, or was given a token it never allowed. Ends one request only."""


class RootMatcher:
    """Implements `types.Matcher`. `grammar` None: only the reasoning is bounded."""

    __slots__ = (
        "_address",
        "_allowed",
        "_bits",
        "_forced_left",
        "_grammar",
        "_is_stopped",
        "_num_slow_steps",
        "_num_tokens",
        "_tracker",
    )

    def __init__(self, grammar: llguidance.LLMatcher | None, tracker: Tracker | None, num_tokens: int) -> None:
        self._grammar = grammar
        self._tracker = tracker
        self._num_tokens = num_tokens
        self._bits = np.zeros((num_tokens + 31) // 32 * 4, np.uint8)
        self._address = self._bits.ctypes.data  # asked for once: it costs more than all else here
        self._allowed: NDArray[np.bool_] | None = None  # of the next token; None: not worked out yet
        self._is_stopped: bool | None = None  # None: not asked yet
        self._forced_left: deque[int] = deque()  # of the run found last
        self._num_slow_steps = 0

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
        return allowed if held is None else self._without(allowed, held)

    def forced(self) -> list[int]:
        if self._tracker is not None and (closing := self._tracker.due_closing()):
            return closing
        if self._grammar is None:
            return []
        if not self._forced_left:
            began = perf_counter()
            self._forced_left.extend(self._grammar.compute_ff_tokens())
            self._check(began)
        return list(self._forced_left)

    def accept(self, token_id: int) -> None:
        self._allowed = self._is_stopped = None
        if self._forced_left and self._forced_left.popleft() != token_id:
            self._forced_left.clear()
        if self._grammar is not None and not self._grammar.consume_token(token_id):
            raise GrammarFailure(self._grammar.get_error() or "a token that was not allowed")
        if self._tracker is not None:
            self._tracker.feed(token_id)

    def _work_out(self, grammar: llguidance.LLMatcher) -> NDArray[np.bool_]:
        if self._allowed is None:
            began = perf_counter()
            grammar.unsafe_compute_mask_ptr(self._address, self._bits.nbytes)
            self._check(began)
            bits = np.unpackbits(self._bits, count=self._num_tokens, bitorder="little")
            self._allowed = bits.view(np.bool_)
        return self._allowed

    def _check(self, began: float) -> None:
        """Steps that take this long would stall every other stream again and again."""
        assert self._grammar is not None
        if self._grammar.is_error():
            raise GrammarFailure(self._grammar.get_error())
        self._num_slow_steps += perf_counter() - began > _MAX_STEP_S
        if self._num_slow_steps > _MAX_SLOW_STEPS:
            raise GrammarFailure("its steps take too long")

    @staticmethod
    def _without(allowed: NDArray[np.bool_], held: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Hold the end of the reasoning back, unless nothing else is left."""
        freed = allowed.copy()
        freed[held] = False
        return freed if freed.any() else allowed
