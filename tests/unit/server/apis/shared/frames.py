"""What tests read and write of chunks: log-probabilities of tokens, and the choices in a stream's frames."""

import json
from typing import Any

from proxy_inference_engine.output.events import TokenLogprob, TopLogprob
from proxy_inference_engine.types import Timings

TIMINGS = Timings(1.0, 200.0, 500.0)


def entry(piece: bytes, logprob: float = -0.5) -> TokenLogprob:
    top = TopLogprob("é", -0.1, "é".encode(), 7)
    return TokenLogprob(piece.decode("utf-8", "replace"), logprob, piece, (top,), 5)


def chunks(frames: str) -> list[dict[str, Any]]:
    lines = frames.splitlines()  # cuts at U+2028 too, which must not matter
    assert all(line.startswith("data: ") for line in lines[::2]) and not any(lines[1::2])
    return [json.loads(line.removeprefix("data: ")) for line in lines[::2]]


def choices_of(parts: list[dict[str, Any]], index: int) -> list[dict[str, Any]]:
    return [choice for part in parts for choice in part["choices"] if choice["index"] == index]
