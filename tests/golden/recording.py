"""Plays the cases of a group against its servers and writes down what came back, a line for every part of it.

Two recordings are the same text exactly where the traffic was the same bytes, but for what `normal.py` takes out.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.golden.case import Case
from tests.golden.normal import Normal, without_pings, without_values
from tests.golden.servers import Servers
from tests.golden.wire import Answered, Asked, ask, exchange
from tests.polling import HANG_S

FOLDER = Path(__file__).parent / "recorded"
_MAX_BODY = 4000  # characters of a request that are written down
_LEFT_OUT = frozenset({"date"})
_FRAME = re.compile(r"(?:event: (?P<event>.*)\n)?data: (?P<data>.*)")
_TIMINGS = re.compile(r',"timings":\{[^}]*\}')

Recording = dict[str, list[str]]  # name of a case → lines


def record(cases: Sequence[Case]) -> Recording:
    """In their order: a server remembers what it was asked before."""
    recording: Recording = {}
    with Servers() as servers:
        kept: dict[str, str] = {}
        for case in cases:
            assert case.name not in recording, f"two cases are called {case.name!r}"
            recording[case.name] = _play(case, servers[case.server].address, kept)
    return recording


def _play(case: Case, address: tuple[str, int], kept: dict[str, str]) -> list[str]:
    asked = ask(case, address, kept)
    deadline = time.monotonic() + HANG_S
    while case.until not in (body := (answered := exchange(address, asked, case.method)).body.decode("utf-8")):
        assert time.monotonic() < deadline, f"{case.name!r} still waits for {case.until!r}: {body}"
        time.sleep(0.01)
    for name, pattern in case.keep.items():
        found = re.search(pattern, body)
        assert found is not None, f"{case.name!r} has no {pattern!r}: {body}"
        kept[name] = found[0]
    normal = Normal()
    return [*_asked_lines(case, asked, normal), *_answered_lines(case, answered, normal)]


def _asked_lines(case: Case, asked: Asked, normal: Normal) -> Iterator[str]:
    request: dict[str, Any] = {"case": case.name, "request": f"{case.method} {normal(asked.path)}"}
    if case.server != "plain":
        request["server"] = case.server
    if asked.headers:
        request["headers"] = asked.headers
    if case.raw is not None:
        request["raw"] = _cut(case.raw.decode("latin-1"))
    yield _line(request)
    if asked.body is not None:
        yield _line({"body": as_value(_cut(normal(asked.body.decode("utf-8", "backslashreplace"))))})


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_BODY else f"{text[:200]}… {len(text)} characters"


def _answered_lines(case: Case, answered: Answered, normal: Normal) -> Iterator[str]:
    headers = {name: value for name, value in answered.headers if name not in _LEFT_OUT}
    assert len(headers) + sum(name in _LEFT_OUT for name, _ in answered.headers) == len(answered.headers), "one twice"
    if "content-length" in headers:
        # What is normalised changes the number; whether it is right can be told here.
        is_right = case.method == "HEAD" or int(headers["content-length"]) == len(answered.body)
        headers["content-length"] = "<right>" if is_right else "<wrong>"
    if "allow" in headers:
        headers["allow"] = ", ".join(sorted(headers["allow"].split(", ")))  # of a set
    # Their order says nothing.
    shown = {name: normal(value) for name, value in sorted(headers.items())}
    yield _line({"status": answered.status, "headers": shown})
    text, media = answered.body.decode("utf-8"), headers.get("content-type", "")
    if media.startswith("text/event-stream"):
        yield from _frames(normal(without_pings(text)), case)
    elif media.startswith("application/x-ndjson"):
        # A space before an object is a ping.
        yield from (_line({"line": as_value(line.lstrip(" "))}) for line in normal(text).split("\n"))
    elif media.startswith("text/plain"):
        yield from (_line({"line": line}) for line in without_values(text).split("\n"))
    elif text:
        yield _line({"answer": as_value(normal(text))})


def _frames(text: str, case: Case) -> Iterator[str]:
    *frames, rest = text.split("\n\n")
    if case.is_cut:
        frames = frames[next((index for index, frame in enumerate(frames) if '"error":{' in frame), 0) :]
    if case.is_unordered:
        # Which choice ends last, and so tells the timings, is chance as well.
        frames = sorted((_TIMINGS.sub("", frame) for frame in frames), key=_choice)
    for frame in frames:
        found = _FRAME.fullmatch(frame)
        if found is None:
            yield _line({"frame": frame})
        else:
            event = {} if found["event"] is None else {"event": found["event"]}
            yield _line({**event, "data": as_value(found["data"])})
    if rest:
        yield _line({"rest": rest})


def _choice(frame: str) -> int:
    found = re.search(r'"index":(\d+)', frame)
    return 1000 if found is None else int(found[1])


def as_value(text: str) -> Any:
    """JSON as a value where that says every byte of it, else the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if text in (_compact(value), json.dumps(value, ensure_ascii=False)) else text


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


def write(group: str, recording: Recording) -> None:
    lines = [line for case in recording.values() for line in case]
    (FOLDER / f"{group}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


@cache
def read(group: str) -> Recording:
    path = FOLDER / f"{group}.jsonl"
    recording: Recording = {}
    for line in path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else ():
        if line.startswith('{"case": '):
            recording[json.loads(line)["case"]] = lines = []
        lines.append(line)
    return recording
