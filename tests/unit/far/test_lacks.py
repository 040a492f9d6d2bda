"""What vLLM lacks: the table of the documents is that of the code."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.far.lacks import LACKS, refuse_lacking
from proxy_inference_engine.far.wire import GENERATE, AskedChoice
from proxy_inference_engine.types import STEP_PARAMETERS, Request, Sampling
from tests.requests import make_request
from tests.wider import CHANGES, wider

DOCUMENT = Path(__file__).parents[3] / "docs" / "vllm.md"


def test_the_documents_say_the_same() -> None:
    section = DOCUMENT.read_text().partition("## What vLLM lacks")[2].partition("Also:")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)
    assert rows == [(lack.param, lack.reason) for lack in LACKS]


def test_a_plain_request_lacks_nothing() -> None:
    refuse_lacking(make_request())


def test_the_first_is_named() -> None:
    request = make_request()
    asked = replace(request, sampling=replace(request.sampling, mirostat=2, xtc_probability=0.5))
    with pytest.raises(InvalidRequest) as refused:
        refuse_lacking(asked)
    assert refused.value.param == "xtc_probability" and "vLLM has no XTC" in refused.value.message


def _body(request: Request) -> bytes:
    return AskedChoice(request, 0, "there", frozenset({2})).body(GENERATE)


@pytest.mark.parametrize("name", sorted(CHANGES.keys() - STEP_PARAMETERS))
def test_what_changes_the_sampling_is_sent_or_refused(name: str) -> None:
    request = replace(make_request(), sampling=Sampling(seed=1))
    changed = replace(request, sampling=replace(request.sampling, **{name: CHANGES[name]}))
    try:
        refuse_lacking(changed)
    except InvalidRequest as refused:
        assert refused.param == name
    else:
        assert _body(changed) != _body(request)


def test_a_new_field_is_refused() -> None:
    """Nobody tells vLLM of it yet."""
    request = make_request()
    refuse_lacking(wider(request))
    refuse_lacking(replace(request, sampling=wider(request.sampling)))
    for asked in (wider(request, added=1.0), replace(request, sampling=wider(request.sampling, added=1.0))):
        with pytest.raises(InvalidRequest) as refused:
            refuse_lacking(asked)
        assert refused.value.param == "added"
