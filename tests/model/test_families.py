"""Every family's grammar on real weights: markers that the vocabulary lacks are text, in tokens of any cut."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.formats import FORMATS, Format
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner
from tests.model.conftest import make_runner
from tests.model.structured import EIGHT, Desk, Reply, is_valid, json_of, said
from tests.model.test_tools import Wish, check_reply, closed

pytestmark = pytest.mark.model

_THINKING_TOKENS = 8
_MAX_TOKENS = 120
_FORECAST = closed({"city": {"enum": ["Paris", "Zürich"]}, "days": {"type": "integer", "minimum": 1, "maximum": 14}})
_NOTE = closed(
    {"text": {"type": "string", "maxLength": 12}, "tags": {"type": "array", "items": {"enum": ["a", 3]}, "maxItems": 2}}
)
_TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": parameters, "strict": True}}
    for name, parameters in (("forecast", _FORECAST), ("note", _NOTE))
]
_NAMED = {"type": "function", "function": {"name": "note"}}
_WISHES = [
    Wish(_TOOLS, "required", True, frozenset({"forecast", "note"})),
    Wish(_TOOLS, _NAMED, True, frozenset({"note"})),
    Wish(_TOOLS, "auto", False, frozenset()),
]
_VERDICT = closed({"is_good": {"type": "boolean"}, "why": {"type": "string", "maxLength": 10}})


@pytest.fixture(scope="module")
def eight(weights: Path) -> Iterator[LlamaRunner]:
    runner = make_runner(weights, lanes=EIGHT)
    yield runner
    runner.close()


@pytest.mark.parametrize("family", FORMATS, ids=lambda family: family.name)
def test_every_family(eight: LlamaRunner, family: Format) -> None:
    desk = Desk(eight, Config.model_validate({"format": family.name}))
    can_think = family.thinking is not None or family.channels is not None
    fields = {"reasoning_budget_tokens": _THINKING_TOKENS} if can_think else {}
    bodies = [{**wish.body(1, _MAX_TOKENS), **fields} for wish in _WISHES]
    *replies, verdict = desk.ask([*bodies, _structured(fields)])
    for wish, reply in zip(_WISHES, replies, strict=True):
        assert check_reply(wish, reply) not in ("refused", "relaxed")
        _assert_clean(family, reply)
    named = replies[1].answer.calls
    assert [call.name for call in named] == ["note"] and named[0].is_complete
    _assert_clean(family, verdict)
    assert is_valid(json_of(verdict.answer.text), _VERDICT), verdict.answer.text


def _structured(fields: dict[str, Any]) -> dict[str, Any]:
    format = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": _VERDICT}}
    asked = {"messages": said("Is the sea blue?"), "response_format": format, "temperature": 1, "seed": 1}
    return {**asked, "max_tokens": _MAX_TOKENS, **fields}


def _assert_clean(family: Format, reply: Reply) -> None:
    """Markers are no content, and neither is what stands between them."""
    assert reply.refusal is None
    markers = [] if family.calls is None else [family.calls.opening]
    markers += [] if family.thinking is None else [family.thinking.closing]
    markers += [] if family.channels is None else [family.channels.channel, family.channels.message]
    shown = json.dumps([reply.answer.text, [call.arguments for call in reply.answer.calls]], ensure_ascii=False)
    assert not [marker for marker in markers if len(marker.strip()) > 2 and marker.strip() in shown], shown
