"""Where in its answer a choice stands, from its tokens alone; holds the reasoning to its least and most tokens."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.state_machine.vocabulary import GrammarVocabulary
from proxy_inference_engine.types import State

_MAX_CHAR_BYTES = 4


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
    """Fed with every token. Marker tokens are known by their ids; markers that are text are looked for in the bytes."""

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
