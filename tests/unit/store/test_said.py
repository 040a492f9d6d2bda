"""What a response in the background has said so far is there for other servers, until all of it is stored with it."""

from proxy_inference_engine.store import NewFrames, ResponseId
from tests.unit.store.stores import Where, opened, record


async def test_what_was_said_has_no_gaps_whatever_is_told_twice(anywhere: Where) -> None:
    which = ResponseId("anna", "x")
    async with opened(anywhere) as store:
        await store.save(record("x", status="queued", output=[]))
        frames = [f"frame {number}" for number in range(10)]
        for first, end in ((0, 2), (2, 4), (2, 7), (7, 10)):  # the second was stored, and its answer lost
            await store.add_said({which: NewFrames(first, frames[first:end])})
        for first in range(12):
            said = await store.said("anna", "x", first)
            assert said is not None and not said.is_over and said.frames == frames[first:]
        await store.ask_to_cancel("anna", "x")
        assert (await store.add_said({})).cancelled == {which}
        await store.save(record("x"))
        said = await store.said("anna", "x", 0)
        assert said is not None and said.is_over and said.frames == [], "all of them are stored with it now"
        assert await store.said("anna", "y", 0) is None and await store.said("ben", "x", 0) is None
        assert await store.delete("response", "anna", "x")
        assert await store.said("anna", "x", 0) is None
