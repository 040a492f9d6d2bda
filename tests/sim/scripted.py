"""A grammar that costs nothing: what it allows and forces is a hash of the tokens before, the same every time."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.fake import ByteTokenizer
from proxy_inference_engine.state_machine.matcher import GrammarFailure
from proxy_inference_engine.types import Matcher, State

_STATES: tuple[State, ...] = ("text", "reasoning", "tool_call", "structured")
_RUNS = (0, 0, 0, 1, 2, 5, 31, 32, 33, 70)  # lengths of forced runs
_FIRST, _NUM_LETTERS = 97, 26
_NUM_TOKENS = ByteTokenizer().num_tokens
_END_IDS = sorted(ByteTokenizer().end_ids)


@dataclass(frozen=True, slots=True)
class ScriptedConstraint:
    """`most`: tokens until it is complete; `fails_at`: tokens after which it goes over its limits."""

    seed: int
    most: int
    fails_at: int | None = None

    @property
    def min_reasoning_tokens(self) -> int:
        return 0

    @property
    def budget(self) -> None:
        return None

    @property
    def grammar(self) -> str | None:
        return None

    def start(self) -> Matcher:
        return ScriptedMatcher(self)


@dataclass(slots=True)
class ScriptedMatcher:
    script: ScriptedConstraint
    num_tokens: int = 0
    _hash: int = 0
    _forced: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._hash = self.script.seed
        self._plan()

    @property
    def state(self) -> State:
        return _STATES[self._hash % len(_STATES)]

    @property
    def is_complete(self) -> bool:
        return self.num_tokens >= self.script.most

    def prepare(self) -> None:
        """There is nothing to work out."""

    def mask(self) -> NDArray[np.bool_] | None:
        if self._hash % 5 == 0 and not self._forced:
            return None
        allowed = np.zeros(_NUM_TOKENS, np.bool_)
        if self._forced:
            allowed[self._forced[0]] = True
            return allowed
        allowed[[_FIRST + (self._hash >> shift) % _NUM_LETTERS for shift in (3, 7, 11)]] = True
        allowed[_END_IDS] = self._hash % 7 == 0
        return allowed

    def forced(self) -> list[int]:
        return self._forced[: max(0, self.script.most - self.num_tokens)]

    def accept(self, token_id: int) -> None:
        self.num_tokens += 1
        if self.num_tokens == self.script.fails_at:
            raise GrammarFailure("over its limits")
        self._hash = (self._hash * 1_000_003 + token_id) % (1 << 31)
        if self._forced:
            assert self._forced.pop(0) == token_id, "a forced token was not taken"
        else:
            self._plan()

    def _plan(self) -> None:
        length = _RUNS[(self._hash >> 5) % len(_RUNS)]
        self._forced = [_FIRST + (self._hash >> 2) * (place + 1) % _NUM_LETTERS for place in range(length)]
