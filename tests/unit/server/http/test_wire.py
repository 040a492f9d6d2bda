"""What every API writes alike: ids, names of parameters, JSON."""

import math

import pytest

from proxy_inference_engine.errors import shorten
from proxy_inference_engine.server.http.wire import dumps, new_id, param_name, request_id


@pytest.mark.parametrize("wanted", [b"a", b"A-b_c.9", b"x" * 128])
def test_a_harmless_request_id_is_echoed(wanted: bytes) -> None:
    assert request_id(wanted) == wanted.decode()


@pytest.mark.parametrize("wanted", [None, b"", b"x" * 129, b"a b", b"a\r\nb", b"a\n", b"\xe9", "٣".encode(), b"a/b"])
def test_other_request_ids_are_replaced(wanted: bytes | None) -> None:
    assert request_id(wanted).startswith("req-")


def test_ids_differ() -> None:
    assert len({new_id("x-") for _ in range(100)}) == 100


def test_param_names() -> None:
    assert param_name(["messages", 0, "content", 1, "text"]) == "messages[0].content[1].text"
    assert param_name([]) is None
    assert len(param_name(["k" * 1000] * 100) or "") < 1200
    assert shorten("a\nb" * 1000, 5) == "a?ba?…"


def test_json_is_compact_and_finite() -> None:
    assert dumps({"a": ["é", 1.5, None]}) == '{"a":["é",1.5,null]}'
    assert dumps("\u2028\x85\u2029\n") == '"\\u2028\\u0085\\u2029\\n"'
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumps(math.nan)
