"""One request of the golden traffic, and the short ways to write many of them down."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Json = dict[str, Any]
Headers = Sequence[tuple[str, str | None]]  # None: not even the one that is always sent

MODEL = "fake"
_MAX_NAME = 150


@dataclass(frozen=True)
class Case:
    """`<<name>>` in path and body stands for what an earlier case of the group kept under that name."""

    name: str
    path: str
    body: Any = None  # a JSON value, bytes as they are, or None: no body
    method: str = "POST"
    headers: Headers = ()
    server: str = "plain"
    keep: Mapping[str, str] = field(default_factory=dict)  # name → pattern: its first match in the answer's body
    until: str = ""  # asked again until this is in the answer's body
    is_unordered: bool = False  # several prompts are answered: whose chunk comes first is chance
    is_cut: bool = False  # how far a stream comes before it fails is chance
    raw: bytes | None = None  # the whole request, where it is not one that HTTP allows


def short(value: object) -> str:
    """A value as part of a name."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=lambda _: "left out")
    return text if len(text) <= _MAX_NAME else f"{text[:90]} … {text[-40:]}, {len(text)} characters"


def get(path: str, name: str = "", **options: Any) -> Case:
    return Case(name or f"GET {path}", path, method="GET", **options)


def both(case: Case) -> Iterator[Case]:
    """Whole, and as a stream."""
    yield case
    yield replace(case, name=f"{case.name}, streamed", body={**case.body, "stream": True}, keep={})


def each(base: Case, table: Mapping[str, Json], *, is_streamed: bool = False) -> Iterator[Case]:
    """The body of `base` with the fields of every row."""
    for name, fields in table.items():
        case = replace(base, name=f"{base.name}: {name}" if base.name else name, body=merged(base.body, fields))
        yield from both(case) if is_streamed else [case]


def refused(base: Case, rows: Sequence[Json]) -> Iterator[Case]:
    """Rows of fields that make the body of `base` a wrong one; they are their own names."""
    for fields in rows:
        yield replace(base, name=f"{base.name} refuses {short(fields)}", body=merged(base.body, fields))


def merged(body: Json, fields: Json) -> Json:
    """`...` leaves a field out."""
    return {name: value for name, value in {**body, **fields}.items() if value is not ...}


def user(text: Any) -> Json:
    return {"role": "user", "content": text}


def assistant(text: Any = None, **fields: Any) -> Json:
    return {"role": "assistant", "content": text, **fields}
