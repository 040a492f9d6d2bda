"""A tokenizer over any table of byte pieces, and what the tests ask of it."""

import itertools
from collections.abc import Sequence

from hypothesis import strategies as st

from proxy_inference_engine.output.events import Event, TextDelta, TokenLogprob
from proxy_inference_engine.output.pipeline import Pipeline
from proxy_inference_engine.types import Finished, FinishReason, Logprob, Output, Prefilled, Timings, Token

END = 0
MARK = 1  # a control token that does not end the text
_SPECIALS = {"<|end|>": END, "<|mark|>": MARK}

TIMINGS = Timings(1.0, 2.0, 3.0)

FAMILY = "👩‍👩‍👧‍👦"
THAI = "ภาษาไทย"
CJK = "漢字かな"


class PieceTokenizer:
    """Piece i of the table is token 2 + i; ids 0 and 1 are control tokens."""

    bos_id = None
    end_ids = frozenset({END})
    control_ids = frozenset(_SPECIALS.values())
    specials = _SPECIALS

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._bytes = [name.encode() for name in _SPECIALS] + list(pieces)

    @property
    def num_tokens(self) -> int:
        return len(self._bytes)

    def encode(self, text: str) -> list[int]:
        raise AssertionError(f"output never encodes, yet was asked for {text!r}")

    def token_bytes(self, token_id: int) -> bytes:
        return self._bytes[token_id]


def tokens(pieces: Sequence[bytes], *, has_logprobs: bool = False) -> list[Token]:
    """One token per piece, in order; the log-probability of token i is -i."""
    return [
        Token(token_id, Logprob(token_id, -float(token_id)) if has_logprobs else None)
        for token_id in range(2, 2 + len(pieces))
    ]


def outputs(pieces: Sequence[bytes], reason: FinishReason = "length", *, has_logprobs: bool = False) -> list[Output]:
    return [Prefilled(0), *tokens(pieces, has_logprobs=has_logprobs), Finished(reason, TIMINGS)]


def run(pipeline: Pipeline, stream: Sequence[Output]) -> list[Event]:
    return [event for output in stream for event in pipeline.feed(output)]


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def logprobs_of(events: Sequence[Event]) -> list[TokenLogprob]:
    return [entry for event in events if isinstance(event, TextDelta) for entry in event.logprobs]


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """Divide the bytes at the places; equal places give empty pieces."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


_CHUNKS = [FAMILY.encode(), THAI.encode(), CJK.encode(), "é".encode(), "\ufffd".encode(), b"plain ", b"\n"]
_BROKEN = [
    b"\xff",
    b"\x80",
    b"\xe2\x82",
    b"\xf0\x9f\x91",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"\xe0\x80",
    b"\xf4\x90\x80\x80",
]

texts = st.lists(st.one_of(st.sampled_from(_CHUNKS), st.text(max_size=4).map(str.encode)), max_size=8).map(b"".join)
streams = st.lists(st.one_of(st.sampled_from(_CHUNKS + _BROKEN), st.binary(max_size=4)), max_size=8).map(b"".join)
places = st.lists(st.integers(min_value=0, max_value=200), max_size=20)
