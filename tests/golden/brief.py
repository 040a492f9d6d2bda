"""Plays the mutations of a body and writes a line for each: its name, the status, and the error word for word.

What an accepted one is answered is not written down: that is what the cases are for.
"""

import json
from contextlib import closing

from tests.golden.bodies import BODIES
from tests.golden.mutations import mutations
from tests.golden.normal import Normal
from tests.golden.recording import FOLDER, as_value
from tests.golden.servers import Servers
from tests.golden.wire import Answered, Line

_FOLDER = FOLDER / "mutations"


def record_mutations(name: str, servers: Servers) -> list[str]:
    path, body = BODIES[name]
    server = servers["ranking" if name == "rerank" else "terse"]
    with closing(Line(server.address)) as line:
        assert line.post(path, body).status == 200, f"{name!r} is not even accepted as it is"
        return [_line(what, line.post(path, changed)) for what, changed in mutations(body)]


def _line(what: str, answered: Answered) -> str:
    error = [as_value(Normal()(answered.body.decode()))] if answered.status >= 400 else []
    return json.dumps([what, answered.status, *error], ensure_ascii=False)


def write_mutations(name: str, lines: list[str]) -> None:
    _FOLDER.mkdir(exist_ok=True)
    (_FOLDER / f"{_slug(name)}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_mutations(name: str) -> list[str]:
    return (_FOLDER / f"{_slug(name)}.jsonl").read_text(encoding="utf-8").split("\n")[:-1]


def _slug(name: str) -> str:
    return name.replace(", ", "_")
