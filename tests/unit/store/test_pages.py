"""A page has as many objects as were asked for, unless they are large: then it ends early and says that more follow."""

import pytest

from proxy_inference_engine.store import objects
from tests.unit.store.stores import Where, opened, record


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("size", [10, 700, 5000])
async def test_large_objects_make_short_pages_that_get_on(
    anywhere: Where, monkeypatch: pytest.MonkeyPatch, order: str, size: int
) -> None:
    monkeypatch.setattr(objects, "MAX_PAGE_BYTES", 2000)
    async with opened(anywhere) as store:
        for number in range(7):
            await store.save(record(f"r{number}", text="x" * size))
        found, after, num_pages = list[str](), None, 0
        while True:
            page = await store.list("response", "anna", limit=5, order=order, after=after)  # type: ignore[arg-type]
            num_bytes = sum(len(str(one.body)) for one in page.records)
            assert page.records and (len(page.records) == 1 or num_bytes < 2500)
            found += [one.id for one in page.records]
            after, num_pages = found[-1], num_pages + 1
            if not page.has_more:
                break
    assert found == sorted((f"r{number}" for number in range(7)), reverse=order == "desc")
    assert num_pages == {10: 2, 700: 4, 5000: 7}[size]


async def test_items_of_a_conversation_too(anywhere: Where, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MAX_PAGE_BYTES", 2000)
    async with opened(anywhere) as store:
        await store.save(record("conv", kind="conversation"))
        await store.add_items("anna", "conv", [{"id": f"i{number}", "text": "x" * 900} for number in range(5)])
        page = await store.list_items("anna", "conv", limit=100)
        assert [item["id"] for item in page.items] == ["i0", "i1"] and page.has_more
        page = await store.list_items("anna", "conv", limit=100, after="i3")
        assert [item["id"] for item in page.items] == ["i4"] and not page.has_more
