"""Forms, however they are cut into pieces on their way."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from proxy_inference_engine.errors import InvalidRequest, RequestTimeout
from proxy_inference_engine.server.http import multipart
from proxy_inference_engine.server.http.body import ClientGone
from proxy_inference_engine.server.http.multipart import FormReader, read_form

HEAD = b'--b\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n'
END = b"\r\n--b--\r\n"


def form(data: bytes, purpose: bytes = b"batch") -> bytes:
    named = HEAD % (b"purpose", b"") + purpose + b"\r\n"
    return named + HEAD % (b"file", b'; filename="a"') + data + END


def reader() -> FormReader:
    return FormReader(b"b", ("purpose",))


async def read(pieces: Sequence[bytes], into: FormReader) -> bytes:
    messages: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": number + 1 < len(pieces)}
        for number, piece in enumerate(pieces)
    ]
    written = bytearray()

    async def receive() -> Message:
        await asyncio.sleep(0)
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def write(data: bytes) -> None:
        written.extend(data)

    await read_form(receive, into, write)
    return bytes(written)


@given(st.binary(max_size=300), st.lists(st.integers(0, 600), max_size=12))
def test_a_form_is_the_same_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    if b"\r\n--b" in b"\r\n" + data:
        return  # its own end
    whole = form(data)
    places = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    pieces = [whole[start:end] for start, end in pairwise(places)]
    into = reader()
    assert asyncio.run(read(pieces, into)) == data
    assert into.fields == {"purpose": "batch"} and into.file_name == "a"


@given(st.binary(max_size=400))
def test_bytes_that_are_no_form_are_refused_by_name(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        asyncio.run(read([data], reader()))


def test_no_more_of_a_file_is_held_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multipart, "PIECE_BYTES", 100)
    into, most = reader(), 0
    take = into.take

    def noting() -> bytes:
        nonlocal most
        most = max(most, into.num_file_bytes)
        return take()

    into.take = noting  # type: ignore[method-assign]
    whole = form(b"x" * 10_000)
    pieces = [whole[start : start + 50] for start in range(0, len(whole), 50)]
    assert len(asyncio.run(read(pieces, into))) == 10_000
    assert 100 <= most < 200


def test_what_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multipart, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(multipart, "MIN_BYTES_PER_SECOND", 10**15)
    with pytest.raises(RequestTimeout):
        asyncio.run(read([b"--b\r\n", form(b"x")[5:]], reader()))


def test_a_client_that_leaves_is_noticed() -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def write(_data: bytes) -> None: ...

    with pytest.raises(ClientGone):
        asyncio.run(read_form(gone, reader(), write))
