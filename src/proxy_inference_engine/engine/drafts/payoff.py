"""Whether guesses that cost something pay, measured: rounds with them against passes without. Knows neither models nor
tokens, only seconds and counts."""

from dataclasses import dataclass

from proxy_inference_engine.engine.passes import blend

_NUM_PLAIN = 2  # passes without guesses, before the first with some and whenever their cost has to be measured anew
_NUM_TRIED = 4  # rounds before a verdict
_NUM_HOPELESS = 2  # rounds in a row that would have lost with every guess right: they need no verdict
_NUM_SURE = 16  # rounds that pay before earlier losses are forgotten
_MAX_IDLE = 64  # investments in a row without a round
_MAX_ROUNDS = 256  # until the cost of a plain pass is measured anew
_FIRST_REST = 64  # plain passes after the first loss; twice as many after the next, and so on
_MAX_LOSSES = 6
_KEPT = 0.95  # of the sums in each round: the last twenty count


@dataclass(slots=True)
class Payoff:
    """Whether guesses pay in batches of one size: they are tried, go on while they gain, and rest ever longer when they
    lose again and again.

    A round costs what its guesses took, those that were wrong too, the pass that checked them, and a share of what
    had to be invested before: reading a long text pays only over many rounds.
    """

    _row_s: float = 0.0  # of a plain pass
    _rest: int = _NUM_PLAIN  # plain passes to come
    _seconds: float = 0.0
    _tokens: float = 0.0
    _debt_s: float = 0.0  # invested, and not yet in `_seconds`
    _num_rounds: int = 0
    _num_hopeless: int = 0
    _num_idle: int = 0
    _num_losses: int = 0  # in a row

    def allows(self) -> bool:
        """Whether the next pass should have guesses in it."""
        if self._rest == 0:
            is_loss = self._num_rounds >= _NUM_TRIED and self._tokens * self._row_s < self._seconds
            if is_loss or self._num_hopeless >= _NUM_HOPELESS or self._num_idle >= _MAX_IDLE:
                self._lose()
            elif self._num_rounds >= _NUM_SURE:
                self._num_losses = 0
            if self._num_rounds >= _MAX_ROUNDS:
                self._rest, self._num_rounds = _NUM_PLAIN, _NUM_TRIED
        return self._rest == 0

    def invest(self, seconds: float) -> None:
        """Count time that was spent for guesses to come."""
        self._debt_s += seconds
        self._num_idle += 1

    def observe_plain(self, num_rows: int, seconds: float) -> None:
        """Learn what a pass took in which each row computed one token."""
        self._row_s = blend(self._row_s, seconds / num_rows)
        self._rest = max(0, self._rest - 1)

    def observe_round(self, num_rows: int, num_guessed: int, seconds: float) -> None:
        """Learn what a pass with guesses took. Each row has one token for certain; `gain` adds those guessed right."""
        is_hopeless = (num_rows + num_guessed) * self._row_s < seconds
        self._num_hopeless = self._num_hopeless + 1 if is_hopeless else 0
        share = (1 - _KEPT) * self._debt_s
        self._debt_s -= share
        self._seconds = _KEPT * self._seconds + seconds + share
        self._tokens = _KEPT * self._tokens + num_rows
        self._num_rounds += 1
        self._num_idle = 0

    def gain(self, num_tokens: int) -> None:
        self._tokens += num_tokens

    def _lose(self) -> None:
        self._rest = _FIRST_REST << self._num_losses
        self._num_losses = min(self._num_losses + 1, _MAX_LOSSES)
        self._seconds = self._tokens = self._debt_s = 0.0
        self._num_rounds = self._num_hopeless = self._num_idle = 0
