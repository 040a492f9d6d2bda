"""Log-probabilities are written as ever and take little room until then."""

import json
import sys
import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy_inference_engine.output.events import TokenLogprob, TopLogprob
from proxy_inference_engine.server.apis.shared.chunks import (
    LEAST_CHARS,
    ChatLogprobs,
    ChatTexts,
    TextColumns,
    TextLogprobs,
)
from proxy_inference_engine.server.http.wire import dumps, pieces

LOGPROBS = st.floats(max_value=0, allow_nan=False)
PIECES = st.binary(max_size=4)


def spelled(piece: bytes) -> str:
    return piece.decode("utf-8", "replace")


TOPS = st.builds(lambda piece, value: TopLogprob(spelled(piece), value, piece, 1), PIECES, LOGPROBS)
ENTRIES = st.builds(
    lambda piece, value, top: TokenLogprob(spelled(piece), value, piece, tuple(top), 1),
    PIECES,
    LOGPROBS,
    st.lists(TOPS, max_size=3),
)


def plain(entry: TokenLogprob | TopLogprob) -> dict[str, Any]:
    return {"token": entry.token, "logprob": max(entry.logprob, -9999.0), "bytes": list(entry.bytes)}


@given(st.lists(st.lists(ENTRIES, max_size=5), max_size=5))
def test_chat_entries_are_written_as_they_came(steps: list[list[TokenLogprob]]) -> None:
    kept, texts = ChatLogprobs(), ChatTexts()
    for entries in steps:
        kept.extend(entries)
        assert json.loads(texts.json(entries)) == [
            {**plain(entry), "top_logprobs": list(map(plain, entry.top))} for entry in entries
        ]
    everything = [entry for entries in steps for entry in entries]
    expected = [{**plain(entry), "top_logprobs": list(map(plain, entry.top))} for entry in everything]
    assert kept == expected
    assert "".join(pieces(kept)) == dumps(expected) == dumps(kept)
    assert kept.num_logprobs == sum(1 + len(entry.top) for entry in everything)
    assert len(dumps(kept)) >= LEAST_CHARS * kept.num_logprobs


@given(st.lists(st.lists(ENTRIES, max_size=5), max_size=5))
def test_text_lists_are_those_of_their_pieces(steps: list[list[TokenLogprob]]) -> None:
    one, other, kept = TextLogprobs(), TextLogprobs(), TextColumns()
    for entries in steps:
        kept.extend(one.text(entries))
    whole = other.text([entry for entries in steps for entry in entries])
    assert json.loads(dumps(kept.wire())) == json.loads(dumps(whole))
    assert "".join(pieces(kept.wire())) == dumps(whole)


def test_a_prompt_s_first_token_has_none() -> None:
    lists = TextLogprobs().prompt([(b"a", True), (b"b", True)], [None, TokenLogprob("b", -1.5, b"b", (), 1)])
    kept = TextColumns()
    kept.extend(lists)
    assert kept.wire()["token_logprobs"] == [None, -1.5]
    assert kept.wire()["top_logprobs"] == [None, {"b": -1.5}]


def test_they_take_little_room() -> None:
    """As objects, those of one answer took 1.5 GB."""
    tokens = [bytes([97 + number]) for number in range(21)]
    top = tuple(TopLogprob(spelled(piece), -1.5, piece, 1) for piece in tokens[1:])
    entry = TokenLogprob("a", -0.5, b"a", top, 1)
    tracemalloc.start()
    try:
        kept = ChatLogprobs()
        for _ in range(10_000):
            kept.extend((entry,))
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept.num_logprobs == 210_000
    assert size / kept.num_logprobs < 16, "twelve bytes, and room to grow"
    assert sys.getsizeof(dumps(kept[:1])) > 800
