"""D2: other ways to write an IPv4 address, in a URL and behind a redirect."""

import pytest

from tests.unit.images.test_fetcher import refusal
from tests.unit.images.web import PUBLIC, Web, redirect


@pytest.mark.parametrize(
    "host", ["127.1", "0x7f.1", "0x7f000001", "2130706433", "0177.0.0.1", "127.0.0.0x1", "256.0.0.1", "1.2.3"]
)
async def test_addresses_in_disguise_are_not_allowed(host: str) -> None:
    """Not even resolved, though a resolver would take them."""
    async with Web(names={host: [PUBLIC]}) as web:
        assert (await refusal(web, f"http://{host}/")).code == "url_not_allowed"
        web.pages["/"] = redirect(f"http://{host}/")
        web.names["good.example"] = [PUBLIC]
        assert (await refusal(web, "http://good.example/")).code == "url_not_allowed"
    assert web.resolved == ["good.example"]
