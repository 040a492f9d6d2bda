"""Headers that say what of a request does not bind."""

import pytest

from proxy_inference_engine.server.apis.shared.route import relaxed_headers


@pytest.mark.parametrize(
    ("relaxed", "header"),
    [
        ((), None),
        (("/properties/a:not",), "/properties/a:not"),
        (("/a:b", "/c:d"), "/a:b, /c:d"),
        (("/a,b\r\nx: y:é",), "/a%2Cb%0D%0Ax:%20y:%C3%A9"),
        (("/%:x",), "/%25:x"),
    ],
)
def test_what_was_relaxed_is_listed(relaxed: tuple[str, ...], header: str | None) -> None:
    assert relaxed_headers(relaxed).get("x-pie-relaxed") == header


def test_a_long_list_is_cut() -> None:
    for relaxed in (("/é" * 5000 + ":x",), tuple(f"/properties/p{number}:not" for number in range(1000))):
        header = relaxed_headers(relaxed)["x-pie-relaxed"]
        assert header.endswith("...") and len(header) <= 2048 and header.isascii()
