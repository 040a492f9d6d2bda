"""How many prompt tokens a step may compute, from what steps have cost so far."""

from dataclasses import dataclass

_SMOOTHING = 0.2
_MIN_CHUNK = 16


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

    def chunk(self, num_decoding: int, max_tokens: int) -> int:
        """Prompt tokens to compute beside so many decoding rows."""
        if self._token_s == 0.0:
            return min(self.first_chunk, max_tokens)
        target = self.target_s - num_decoding * self._row_s if num_decoding else self.alone_target_s
        return min(max_tokens, max(_MIN_CHUNK, int(target / self._token_s)))

    def observe(self, num_decoding: int, num_prompt_tokens: int, seconds: float) -> None:
        if num_prompt_tokens == 0:
            if num_decoding:
                self._row_s = _blend(self._row_s, seconds / num_decoding)
        elif num_prompt_tokens >= _MIN_CHUNK:
            rest = max(seconds - num_decoding * self._row_s, seconds / 10)
            self._token_s = _blend(self._token_s, rest / num_prompt_tokens)


def _blend(old: float, new: float) -> float:
    return new if old == 0.0 else old + _SMOOTHING * (new - old)
