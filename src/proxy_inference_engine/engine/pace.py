"""How many prompt tokens a step may compute, from what steps have cost so far."""

from dataclasses import dataclass

_SMOOTHING = 0.2
_MIN_CHUNK = 16
_MIN_TELLING = 32  # a smaller chunk costs mostly the pass over the weights, and would make the next one smaller still


@dataclass(slots=True)
class Pace:
    """Learns seconds per decoding row and per prompt token, and sizes chunks for a step target.

    Until something was measured, `first_chunk` tokens are granted: small enough for a slow machine.
    """

    target_s: float  # for a step that carries running streams
    alone_target_s: float  # for a step that delays nobody's next token
    first_chunk: int = 64
    _row_s: float = 0.0
    _token_s: float = 0.0
    _pass_s: float = 0.0  # one row alone: little more than reading the weights

    def chunk(self, num_decoding: int, max_tokens: int) -> int:
        """Prompt tokens to compute beside so many decoding rows."""
        if self._token_s == 0.0:
            return min(self.first_chunk, max_tokens)
        target = self.target_s - num_decoding * self._row_s if num_decoding else self.alone_target_s
        return min(max_tokens, max(_MIN_CHUNK, int(min(max_tokens, target / self._token_s))))

    def observe(self, num_decoding: int, num_prompt_tokens: int, seconds: float) -> None:
        if num_prompt_tokens == 0:
            if num_decoding:
                self._row_s = blend(self._row_s, seconds / num_decoding)
            if num_decoding == 1:
                self._pass_s = blend(self._pass_s, seconds)
        elif num_prompt_tokens >= _MIN_CHUNK:
            # Rows and prompt are computed in separate passes when both are there.
            overhead = num_decoding * self._row_s + (self._pass_s if num_decoding else 0.0)
            cost = max(seconds - overhead, seconds / 10) / num_prompt_tokens
            # A small chunk's cost is too high, so it can only show that the estimate is higher still.
            if num_prompt_tokens >= _MIN_TELLING or cost < self._token_s:
                self._token_s = blend(self._token_s, cost)


def blend(old: float, new: float) -> float:
    """Slowly up or down; but at once to a much smaller cost, for the first passes of a device compile its kernels."""
    return new if old == 0.0 or new < old / 2 else old + _SMOOTHING * (new - old)
