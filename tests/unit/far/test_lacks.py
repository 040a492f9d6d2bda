"""What vLLM lacks: the table of the documents is that of the code."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.far.lacks import LACKS, refuse_lacking
from tests.requests import make_request

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
