"""The lines of a batch's input: read with bounds, checked one by one, and what is wrong with them by number."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from proxy_inference_engine.errors import shorten
from proxy_inference_engine.server.http.body import MAX_BODY_BYTES, MalformedJson, parse_json

MAX_ID_CHARS = 512
MAX_PROBLEMS = 50  # that are told; a file with so many is not read on
_FIELDS = ("custom_id", "method", "url", "body")
_CHUNK_BYTES = 1024 * 1024  # of lines that are read at a time
_CHUNK_LINES = 256


class BatchLine(NamedTuple):
    number: int  # from 1
    custom_id: str
    body: dict[str, Any]
    num_bytes: int


class LineProblem(Exception):
    """Why a batch is refused."""

    def __init__(self, code: str, message: str, line: int | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.wire = {"code": code, "message": message, "param": param, "line": line}


class RawLine(NamedTuple):
    number: int
    data: bytes


def raw_lines(path: Path) -> Iterator[list[RawLine]]:
    """The lines of a file that are not blank, some at a time. Raises LineProblem at one that is too long, and OSError.

    No more of a file than a line and a bit is ever in memory.
    """
    chunk: list[RawLine] = []
    size = 0
    with path.open("rb") as file:
        for number, data in enumerate(iter(lambda: file.readline(MAX_BODY_BYTES + 1), b""), start=1):
            if len(data) > MAX_BODY_BYTES:
                raise LineProblem("line_too_long", f"A line has more than {MAX_BODY_BYTES} bytes.", number)
            if data.strip():
                chunk.append(RawLine(number, data))
                size += len(data)
            if size >= _CHUNK_BYTES or len(chunk) >= _CHUNK_LINES:
                yield chunk
                chunk, size = [], 0
    if chunk:
        yield chunk


def read_line(raw: RawLine, endpoint: str) -> BatchLine:
    """Raises LineProblem."""
    number, data = raw
    try:
        value = parse_json(data)
    except MalformedJson as error:
        raise LineProblem("invalid_json_line", f"The line {error.reason}.", number, error.param) from None
    if not isinstance(value, dict):
        raise LineProblem("invalid_json_line", "A line has to be a JSON object.", number)
    for name in _FIELDS:
        if name not in value:
            message = f"Missing required parameter: {name!r}."
            raise LineProblem("missing_required_parameter", message, number, name)
    unknown = next((name for name in value if name not in _FIELDS), None)
    if unknown is not None:
        name = shorten(unknown)
        raise LineProblem("unknown_parameter", f"Unknown parameter: {name!r}.", number, name)
    _check(value, endpoint, number)
    return BatchLine(number, value["custom_id"], value["body"], len(data))


def _check(value: dict[str, Any], endpoint: str, number: int) -> None:
    custom_id, body = value["custom_id"], value["body"]
    if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= MAX_ID_CHARS:
        reason = f"a text of 1 to {MAX_ID_CHARS} characters is expected"
        raise LineProblem("invalid_value", f"Invalid value for 'custom_id': {reason}.", number, "custom_id")
    if value["method"] != "POST":
        raise LineProblem("invalid_method", "Invalid value for 'method': it is POST.", number, "method")
    if value["url"] != endpoint:
        message = f"Invalid value for 'url': it has to be the batch's endpoint, {endpoint}."
        raise LineProblem("mismatched_url", message, number, "url")
    if not isinstance(body, dict):
        raise LineProblem("invalid_value", "Invalid value for 'body': an object is expected.", number, "body")
    for name in ("stream", "background"):
        if body.get(name):
            message = f"Invalid value for 'body.{name}': a batch answers with files."
            raise LineProblem("invalid_value", message, number, f"body.{name}")


class LineChecker:
    """Goes through all lines before any is answered."""

    def __init__(self, endpoint: str, max_lines: int) -> None:
        self.problems: list[dict[str, Any]] = []
        self.num_lines = 0
        self._endpoint = endpoint
        self._max_lines = max_lines
        self._ids: set[str] = set()

    def check(self, chunk: list[RawLine]) -> bool:
        """False: there is no need to go on."""
        for raw in chunk:
            self.num_lines += 1
            try:
                self._check(raw)
            except LineProblem as problem:
                self.problems.append(problem.wire)
            if len(self.problems) >= MAX_PROBLEMS or self.num_lines > self._max_lines:
                return False
        return True

    def _check(self, raw: RawLine) -> None:
        if self.num_lines > self._max_lines:
            raise LineProblem("too_many_lines", f"A batch has at most {self._max_lines} requests.", raw.number)
        line = read_line(raw, self._endpoint)
        if line.custom_id in self._ids:
            message = f"The custom_id {shorten(line.custom_id)!r} comes twice."
            raise LineProblem("duplicate_custom_id", message, raw.number, "custom_id")
        self._ids.add(line.custom_id)
