"""A Hugging Face hub on this machine: real HTTP, real digests, redirects to a second host, and faults on demand.

It is a package registry too: the files of a package are those of the repository `simple/<package>`.
"""

import fcntl
import hashlib
import json
import os
import socket
import ssl
import struct
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tests.polling import HANG_S, wait_until

COMMIT, OTHER_COMMIT = "0123456789abcdef0123456789abcdef01234567", "f" * 40
_LARGE = (".gguf", ".safetensors", ".bin")  # what is kept in LFS


class Asked(NamedTuple):
    host: str
    path: str
    token: str | None
    range: str | None


class Hub:
    """Repositories, and what goes wrong with them. Everything may be changed while the server runs."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.commits = {"main": COMMIT, COMMIT: COMMIT}
        self.asked: list[Asked] = []
        self.listing: Any = None  # said in place of the true one
        self.cuts: list[int] = []  # after how many bytes the next files break off
        self.resets = False  # whether they break off with a reset
        self.stalls: list[int] = []  # after how many bytes the next files stand still, until `release` is set
        self.release = threading.Event()
        self.refusals: list[tuple[int, dict[str, str]]] = []  # answers to the next requests
        self.served: dict[str, bytes] = {}  # other bytes than those that were listed
        self.tags: dict[str, str] = {}  # other tags than the digests
        self.token: str | None = None  # who has another one is refused
        self.has_ranges = True
        self.has_lengths = True
        self.elsewhere: str | None = None  # where files are redirected to
        self.stored_at = "../.."  # where the pages of packages say that files are
        self.storage: str | None = None  # the address of a server that hf-xet may ask for files
        self.scheme = "http"
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        """The files that were asked for, in order."""
        marks = (each.path.partition("/resolve/")[2].partition("/")[2] for each in self.asked)
        return [mark for mark in marks if mark]

    def describe(self, repository: str, commit: str) -> dict[str, Any]:
        files = self.repositories[repository]
        return {"id": repository, "sha": commit, "siblings": [describe(name, data) for name, data in files.items()]}


def describe(name: str, data: bytes) -> dict[str, Any]:
    """A file as the hub lists it."""
    entry: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": git_digest(data)}
    if name.endswith(_LARGE):
        entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return entry


def git_digest(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%s" % (len(data), data)).hexdigest()


def digest(name: str, data: bytes) -> str:
    """The name of a file's blob."""
    return hashlib.sha256(data).hexdigest() if name.endswith(_LARGE) else git_digest(data)


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[Hub]:
    hub = Hub()

    class Handler(_Handler):
        state = hub

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.port = server.server_address[1]
        if tls is not None:
            hub.scheme = "https"
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            hub.release.set()
            server.shutdown()
            thread.join()


def own_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the hub's files in a folder, whatever the caller's environment says of hubs and proxies."""
    for name in list(os.environ):
        if name.startswith("HF_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(folder))
    return folder / "hub"


class _Handler(BaseHTTPRequestHandler):
    state: Hub

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, path = self.state, unquote(urlsplit(self.path).path)
        token = self.headers.get("Authorization")
        hub.asked.append(Asked(self.headers["Host"], path, token, self.headers.get("Range")))
        if hub.refusals:
            status, headers = hub.refusals.pop(0)
            return self._answer(status, b"", headers)
        if path.startswith("/simple/"):
            return self._list_package(path.strip("/"))
        if path.startswith("/stored/"):
            owner, model, name = path.removeprefix("/stored/").split("/", 2)
            return self._send_file(f"{owner}/{model}", name)
        if hub.token is not None and token != f"Bearer {hub.token}":
            return self._answer(401, b"", {"X-Error-Code": "GatedRepo"})
        if "/xet-read-token/" in path:
            grant = {"accessToken": "storage", "exp": int(time.time()) + 3600, "casUrl": hub.storage}
            return self._answer(200, json.dumps(grant).encode(), {})
        if path == "/api/models":
            return self._search(urlsplit(self.path).query)
        if path.startswith("/api/models/"):
            repository, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            return self._list(repository, revision)
        owner, model, _, commit, name = path.removeprefix("/").split("/", 4)
        if commit not in ("main", hub.commits["main"]):
            return self._answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
        self._redirect(f"{owner}/{model}", hub.commits["main"], name)

    def _list(self, repository: str, revision: str) -> None:
        hub = self.state
        if repository not in hub.repositories:
            return self._answer(401, b"", {"X-Error-Code": "RepoNotFound"})
        if revision not in hub.commits:
            return self._answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
        listing = hub.describe(repository, hub.commits[revision]) if hub.listing is None else hub.listing
        self._answer(200, listing if isinstance(listing, bytes) else json.dumps(listing).encode(), {})

    def _search(self, query: str) -> None:
        wanted = parse_qs(query)
        names = [name for name in self.state.repositories if wanted["search"][0].lower() in name.lower()]
        found = [{"id": name, "downloads": 5, "likes": 1, "tags": ["gguf"]} for name in names]
        listing = found[: int(wanted["limit"][0])] if self.state.listing is None else self.state.listing
        self._answer(200, listing if isinstance(listing, bytes) else json.dumps(listing).encode(), {})

    def _list_package(self, repository: str) -> None:
        if repository not in self.state.repositories:
            return self._answer(404, b"", {})
        names = self.state.repositories[repository]
        links = "".join(
            f'<a href="{self.state.stored_at}/stored/{repository}/{name}#sha256=0">{name}</a><br/>' for name in names
        )
        self._answer(200, f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), {"Content-Type": "text/html"})

    def _redirect(self, repository: str, commit: str, name: str) -> None:
        """Files in LFS lie on another host, the others are sent as they are."""
        data = self.state.repositories[repository][name]
        if not name.endswith(_LARGE):
            return self._send_file(repository, name)
        headers = {
            "Location": self.state.elsewhere
            or f"{self.state.scheme}://localhost:{self.state.port}/stored/{repository}/{name}",
            "X-Repo-Commit": commit,
            "X-Linked-Etag": f'"{digest(name, data)}"',
            "X-Linked-Size": str(len(data)),
        }
        if self.state.storage is not None:
            headers["X-Xet-Hash"] = digest(name, data)  # any 64 digits: the storage knows files by them
        self._answer(302, b"", headers)

    def _send_file(self, repository: str, name: str) -> None:
        data = self.state.repositories[repository][name]
        headers = {
            "ETag": f'"{self.state.tags.get(name) or digest(name, data)}"',
            "Accept-Ranges": "bytes",
            "X-Repo-Commit": self.state.commits["main"],
        }
        data = self.state.served.get(name, data)
        wanted = self.headers.get("Range")
        if wanted is None or not self.state.has_ranges:
            return self._answer(200, data, headers, is_file=True)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, end = int(first), int(last) + 1 if last else len(data)
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        self._answer(206, data[start:end], headers, is_file=True)

    def _answer(self, status: int, data: bytes, headers: dict[str, str], *, is_file: bool = False) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        if self.state.has_lengths:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if is_file and self.state.cuts:
            data = data[: self.state.cuts.pop(0)]
            if self.state.resets:
                return self._reset(data)
        if is_file and self.state.stalls:
            num_bytes = self.state.stalls.pop(0)
            self.wfile.write(data[:num_bytes])
            self.state.release.wait(HANG_S)
            data = b""
        self.wfile.write(data)

    def _reset(self, data: bytes) -> None:
        self.wfile.write(data)
        wait_until(lambda: _num_unsent(self.connection) == 0)  # a reset throws away what has not arrived
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


def _num_unsent(sock: socket.socket) -> int:
    """Bytes that the other end does not have yet."""
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
