"""Forward passes: what a step may cost, and computing what it grants, once more after a failure."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy_inference_engine.engine.sequence import Grant, Sequence, make_row
from proxy_inference_engine.engine.stats import Stats
from proxy_inference_engine.errors import ENDINGS
from proxy_inference_engine.runners.base import Logits, Runner

_SMOOTHING = 0.2
_MIN_CHUNK = 16
_PATIENCE = 16  # steps in which a prompt's claim on the others' time grows by as much as it begins with
_LEAST_CLAIM = 0.25  # of the time that a step costs without it
_MIN_SPREAD = 0.1  # of sizes, relative to their mean, from which costs can be told apart
_NUM_ALIKE = 4  # small chunks of one size, after which another is tried
_IDLE_SHARE = 0.125  # of the step target, for a step that nobody waits for: whoever comes waits for its end
_UNNOTICED = 0.04  # of a step's time
_LEAST_IDLE = 2  # rows of such a step: from one alone nobody learns what a second costs
_LONGER = 0.25  # than with one row a step may be, where one row is all that a short one has


@dataclass(slots=True)
class Pace:
    """Learns what a step costs, whatever it computes, and what each decoding row and each prompt token add; and sizes
    chunks for a step target.

    Where the machine is so slow that a step alone takes longer than the target, a prompt still gets tokens for a part
    of that time, which grows with its age: so every prompt gets on, and streams are at most half as fast.
    Until something was measured, `first_chunk` tokens are granted: small enough for a slow machine.
    """

    target_s: float  # for a step that carries running streams
    alone_target_s: float  # for a step that delays nobody's next token
    first_chunk: int = 64
    _row_s: float = 0.0
    _pass_s: float = 0.0  # one row alone: little more than reading the weights
    _line: "_Line" = field(default_factory=lambda: _Line())
    _rows: "_Line" = field(default_factory=lambda: _Line())  # of passes in which every row decodes
    _beside: "_Line" = field(default_factory=lambda: _Line())  # what prompts add to such passes
    _num_alike: int = 0  # chunks of about one size in a row

    def chunk(self, num_decoding: int, max_tokens: int, age: int = 0, *, fills_idle: bool = False) -> int:
        """Prompt tokens to compute beside so many decoding rows, for a prompt that has had so many steps.

        `fills_idle`: nobody waits for any of it, but somebody may come.
        """
        costs = self._line.costs(self._pass_s)
        if costs is None:
            return min(self.first_chunk, max_tokens)
        overhead = num_decoding * self._row_s + costs.fixed_s
        target = self.target_s if num_decoding else self.alone_target_s
        if fills_idle:
            target = self.target_s * _IDLE_SHARE
        seconds = max(target - overhead, overhead * claim(age))
        num_tokens = max(_MIN_CHUNK, int(min(max_tokens, seconds / costs.token_s)))
        if self._num_alike >= _NUM_ALIKE and num_tokens < 2 * _MIN_CHUNK:
            num_tokens *= 2  # from one size alone nobody learns what of it tokens cost
        return min(max_tokens, num_tokens)

    def num_rows_beside(self, num_decoding: int) -> int:
        """How many rows may fill idle time: beside others so many that these hardly notice, and else as many as a short
        step has. While nothing is known of what rows cost: beside nobody."""
        fit = self._rows.fit
        if fit is None:
            return 0 if num_decoding else _LEAST_IDLE
        row_s, seconds = max(fit.token_s, 1e-9), fit.fixed_s + max(1, num_decoding) * fit.token_s
        if num_decoding:
            return int(_UNNOTICED * seconds / row_s)
        in_time = int((self.target_s * _IDLE_SHARE - fit.fixed_s) / row_s)
        return max(_LEAST_IDLE, in_time, int(_LONGER * seconds / row_s))

    def num_tokens_beside(self, num_decoding: int) -> int:
        """How many tokens of a prompt may fill idle time beside so many rows, if these are hardly to notice."""
        rows, fit = self._rows.fit, self._beside.fit
        if rows is None or fit is None:
            return 0
        seconds = _UNNOTICED * (rows.fixed_s + num_decoding * rows.token_s) - fit.fixed_s
        num_tokens = int(seconds / max(fit.token_s, 1e-9))
        return num_tokens if num_tokens >= _MIN_CHUNK else 0

    def observe(self, num_decoding: int, num_prompt_tokens: int, seconds: float) -> None:
        if num_prompt_tokens == 0:
            if num_decoding:
                self._rows.add(num_decoding, seconds)
                self._row_s = blend(self._row_s, seconds / num_decoding)
            if num_decoding == 1:
                self._pass_s = blend(self._pass_s, seconds)
        elif num_prompt_tokens >= _MIN_CHUNK:
            is_alike = abs(num_prompt_tokens - self._line.mean_tokens) < _MIN_SPREAD * num_prompt_tokens
            self._num_alike = self._num_alike + 1 if is_alike else 0
            if num_decoding and self._rows.fit is not None:
                rows = self._rows.fit
                self._beside.add(num_prompt_tokens, max(seconds - rows.fixed_s - num_decoding * rows.token_s, 0.0))
            # Rows and prompt are computed in separate passes when both are there.
            self._line.add(num_prompt_tokens, max(seconds - num_decoding * self._row_s, seconds / 10))


def claim(age: int) -> float:
    """What a prompt may take of the others, by how many steps it has been computed in: at first a part, then all."""
    return min(1.0, _LEAST_CLAIM * (1 + age / _PATIENCE))


class StepCosts(NamedTuple):
    fixed_s: float  # of a pass with a prompt in it, however short
    token_s: float


@dataclass(slots=True)
class _Line:
    """Seconds over tokens of passes with a prompt, as a line: weighted least squares that forget."""

    mean_tokens: float = 0.0
    _mean_s: float = 0.0
    _spread: float = 0.0  # variance of the tokens
    _joint: float = 0.0  # covariance of tokens and seconds
    _fixed_s: float = 0.0  # as last seen, for while all are of one size
    fit: StepCosts | None = None  # the line itself, as last seen: nothing is the tokens' doing that is not shown to be

    def add(self, num_tokens: int, seconds: float) -> None:
        expected = self.costs(0.0)
        is_first = expected is None
        if expected is not None and seconds < (expected.fixed_s + num_tokens * expected.token_s) / 2:
            is_first = True  # a device's first passes compile its kernels
        if is_first:
            self.mean_tokens, self._mean_s = num_tokens, seconds
            self._spread = self._joint = self._fixed_s = 0.0
            return
        more, longer = num_tokens - self.mean_tokens, seconds - self._mean_s
        self.mean_tokens += _SMOOTHING * more
        self._mean_s += _SMOOTHING * longer
        self._spread = (1 - _SMOOTHING) * (self._spread + _SMOOTHING * more * more)
        self._joint = (1 - _SMOOTHING) * (self._joint + _SMOOTHING * more * longer)
        if self._is_spread:
            slope = max(0.0, self._joint / self._spread)
            self.fit = StepCosts(max(0.0, self._mean_s - slope * self.mean_tokens), slope)
            self._fixed_s = self._within(self._mean_s - self._joint / self._spread * self.mean_tokens)

    def costs(self, least_fixed_s: float) -> StepCosts | None:
        """None where nothing was measured. `least_fixed_s`: what a pass costs, as is known from others."""
        if self._mean_s <= 0.0:
            return None
        fixed = self._fixed_s if self._is_spread else self._within(max(self._fixed_s, least_fixed_s))
        return StepCosts(fixed, (self._mean_s - fixed) / self.mean_tokens)

    @property
    def _is_spread(self) -> bool:
        return self._spread > (_MIN_SPREAD * self.mean_tokens) ** 2

    def _within(self, fixed_s: float) -> float:
        """Something is always the tokens' doing."""
        return min(max(fixed_s, 0.0), 0.9 * self._mean_s)


def blend(old: float, new: float) -> float:
    """A cost that follows what is measured: slowly, but at once to a much smaller one, for a device's first passes
    compile its kernels."""
    return new if old == 0.0 or new < old / 2 else old + _SMOOTHING * (new - old)


_log = logging.getLogger(__name__)


class Passes:
    """`on_cost` hears how many seconds a pass took, `on_lost` whose tokens could not be computed."""

    def __init__(
        self,
        runner: Runner,
        stats: Stats,
        clock: Callable[[], float],
        on_cost: Callable[[list[Grant], float], None],
        on_lost: Callable[[list[Sequence]], None],
    ) -> None:
        self.num_failures = 0  # in a row
        self._runner = runner
        self._stats = stats
        self._clock = clock
        self._on_cost = on_cost
        self._on_lost = on_lost
        self._is_ordered = runner.chooser is not None  # and not over when `forward` returns
        self._ended_at: float | None = None  # the end of the last pass, where passes follow each other

    def compute(self, grants: list[Grant]) -> list[Logits]:
        """The logits of each grant; none where the pass failed twice in a row, and its sequences are lost."""
        for attempt in (1, 2):
            began = self._clock()
            try:
                logits = self._runner.forward([make_row(grant) for grant in grants])
            except ENDINGS:
                raise
            except BaseException:
                _log.exception("forward pass failed (attempt %d)", attempt)
                if not self._take_back(grants):
                    break
                continue
            self._account(grants, began)
            return logits
        self.num_failures += 1
        self._on_lost([grant.sequence for grant in grants])
        return []

    def pause(self) -> None:
        """A step without a pass: the next one follows none."""
        self._ended_at = None

    def cut(self, sequence: Sequence) -> None:
        """Forget what the slot holds beyond the sequence's own tokens."""
        assert sequence.slot is not None
        self._runner.truncate(sequence.slot, sequence.num_computed)

    def _account(self, grants: list[Grant], began: float) -> None:
        now = self._clock()
        self._stats.total_forward_seconds += now - began
        self.num_failures = 0
        if not self._is_ordered:
            self._on_cost(grants, now - began)
        elif self._ended_at is not None:  # at most one pass waits for another, so this is what one takes
            self._on_cost(grants, now - self._ended_at)
        self._ended_at = now

    def _take_back(self, grants: list[Grant]) -> bool:
        """Forget what a failed pass may have left in its slots; False where the model's memory can't."""
        try:
            for grant in grants:
                self.cut(grant.sequence)
        except Exception:
            _log.exception("a failed pass could not be taken back")
            return False
        return True
