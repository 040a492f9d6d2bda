"""Walks one choice's output: the grammar says what may come next, the tracker where in the answer it stands."""

from collections import deque
from time import thread_time

import llguidance
import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.state_machine.tracker import Tracker
from proxy_inference_engine.types import State

_MAX_STEP_S = 1.0


class GrammarFailure(Exception):
    """The grammar went over its limits, or was given a token it never allowed. Ends one request only."""


class RootMatcher:
    """Implements `types.Matcher`. `grammar` None: only the reasoning is bounded."""

    __slots__ = ("_bits", "_forced_left", "_grammar", "_is_prepared", "_num_tokens", "_tracker")

    def __init__(self, grammar: llguidance.LLMatcher | None, tracker: Tracker | None, num_tokens: int) -> None:
        self._grammar = grammar
        self._tracker = tracker
        self._num_tokens = num_tokens
        self._bits = np.zeros((num_tokens + 31) // 32, np.int32)
        self._is_prepared = False  # whether the bits are those of the next token
        self._forced_left: deque[int] = deque()  # of the run found last

    @property
    def state(self) -> State:
        return "text" if self._tracker is None else self._tracker.state

    @property
    def is_complete(self) -> bool:
        return self._grammar is not None and self._grammar.is_stopped()

    def prepare(self) -> None:
        if self._grammar is not None and not self._grammar.is_stopped():
            self._fill(self._grammar)

    def mask(self) -> NDArray[np.bool_] | None:
        held = None if self._tracker is None else self._tracker.held_ids()
        if self._grammar is None:
            return None if held is None else self._without(np.ones(self._num_tokens, np.bool_), held)
        self._fill(self._grammar)
        allowed = np.unpackbits(self._bits.view(np.uint8), count=self._num_tokens, bitorder="little").view(np.bool_)
        return allowed if held is None else self._without(allowed, held)

    def forced(self) -> list[int]:
        if self._tracker is not None and (closing := self._tracker.due_closing()):
            return closing
        if self._grammar is None:
            return []
        if not self._forced_left:
            began = thread_time()
            self._forced_left.extend(self._grammar.compute_ff_tokens())
            self._check(began)
        return list(self._forced_left)

    def accept(self, token_id: int) -> None:
        self._is_prepared = False
        if self._forced_left and self._forced_left.popleft() != token_id:
            self._forced_left.clear()
        if self._grammar is not None and not self._grammar.consume_token(token_id):
            raise GrammarFailure(self._grammar.get_error() or "a token that was not allowed")
        if self._tracker is not None:
            self._tracker.feed(token_id)

    def _fill(self, grammar: llguidance.LLMatcher) -> None:
        if self._is_prepared:
            return
        began = thread_time()
        grammar.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        self._check(began)
        self._is_prepared = True

    def _check(self, began: float) -> None:
        """A step that takes this long would stall every other stream again and again."""
        assert self._grammar is not None
        if self._grammar.is_error():
            raise GrammarFailure(self._grammar.get_error())
        if thread_time() - began > _MAX_STEP_S:
            raise GrammarFailure("a step took too long")

    @staticmethod
    def _without(allowed: NDArray[np.bool_], held: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Hold the end of the reasoning back, unless nothing else is left."""
        freed = allowed.copy()
        freed[held] = False
        return freed if freed.any() else allowed
