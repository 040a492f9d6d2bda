"""Which tools are offered, under which names, and which grammars say nothing."""

import pytest

from proxy_inference_engine.server.apis.responses.offer import qualified, takes_anything
from proxy_inference_engine.server.apis.responses.tools import FlatGrammar

EXEC = r"""
start: pragma_source | plain_source
pragma_source: PRAGMA_LINE NEWLINE SOURCE
plain_source: SOURCE

PRAGMA_LINE: /[ \t]*\/\/ @exec:[^\r\n]*/
NEWLINE: /\r?\n/
SOURCE: /[\s\S]+/
"""
PATCH = r"""
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: /(.+)/ LF
%import common.LF
"""


@pytest.mark.parametrize(
    ("definition", "is_anything"),
    [
        (EXEC, True),
        ("start: /(.|\\n)+/", True),
        ("start: A\nA: B\nB: A", False),
        ('start: HEAD SOURCE\nHEAD: "x"\nSOURCE: /[\\s\\S]+/', False),
        (PATCH, False),
        ("", False),
    ],
)
def test_grammars_that_allow_everything(definition: str, is_anything: bool) -> None:
    assert takes_anything(FlatGrammar(type="grammar", syntax="lark", definition=definition or " ")) is is_anything
    assert not takes_anything(FlatGrammar(type="grammar", syntax="regex", definition="[\\s\\S]+"))


@pytest.mark.parametrize(
    ("name", "namespace", "whole"),
    [
        ("a", None, "a"),
        ("a", "mcp__w", "mcp__w__a"),
        ("a", "mcp__w__", "mcp__w__a"),
        ("a", "functions", "functions__a"),
    ],
)
def test_names(name: str, namespace: str | None, whole: str) -> None:
    assert qualified(name, namespace) == whole
