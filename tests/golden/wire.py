"""Sends one request over a socket, byte by byte as the case wants it, and takes the answer apart.

No client library: none would send what some cases send, and all of them change what comes back.
"""

import json
import re
import socket
from collections.abc import Mapping
from http.client import HTTPResponse
from typing import NamedTuple

from tests.golden.case import Case
from tests.polling import HANG_S

_PLACE = re.compile(r"<<(\w+)>>")


class Asked(NamedTuple):
    """What goes over the wire, and the parts of it that are written down."""

    data: bytes
    path: str
    headers: list[tuple[str, str]]
    body: bytes | None


class Answered(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


def ask(case: Case, address: tuple[str, int], kept: Mapping[str, str]) -> Asked:
    if case.raw is not None:
        return Asked(case.raw, case.path, [], None)
    path = _filled(case.path, kept)
    body = _body(case, kept)
    headers = [] if body is None else [("content-type", "application/json"), ("content-length", str(len(body)))]
    host = ("host", f"{address[0]}:{address[1]}")
    own = {name for name, _ in case.headers}
    said = [(name, value) for name, value in case.headers if value is not None]
    sent = [pair for pair in [host, *headers] if pair[0] not in own] + said
    lines = [f"{case.method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent), "", ""]
    return Asked("\r\n".join(lines).encode("latin-1") + (body or b""), path, said, body)


def _body(case: Case, kept: Mapping[str, str]) -> bytes | None:
    if case.body is None or isinstance(case.body, bytes):
        return case.body
    return _filled(json.dumps(case.body, ensure_ascii=False), kept).encode()


def _filled(text: str, kept: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda place: kept[place[1]], text)


def exchange(address: tuple[str, int], asked: Asked, method: str) -> Answered:
    with socket.create_connection(address, timeout=HANG_S) as connection:
        connection.sendall(asked.data)
        return _answer(connection, method)


def _answer(connection: socket.socket, method: str) -> Answered:
    response = HTTPResponse(connection, method=method)
    response.begin()
    return Answered(response.status, response.getheaders(), response.read())


class Line:
    """A connection that carries one exchange after the other, where only the bodies matter."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._connection = socket.create_connection(address, timeout=HANG_S)

    def post(self, path: str, body: object) -> Answered:
        return self.send(path, json.dumps(body, ensure_ascii=False).encode())

    def send(self, path: str, data: bytes) -> Answered:
        """As it is, JSON or not."""
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        self._connection.sendall(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        return _answer(self._connection, "POST")

    def close(self) -> None:
        self._connection.close()
