"""One pool of threads for everybody, and no way for one to have all of it."""

import asyncio
import threading

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.interaction import Interaction, Role
from proxy_inference_engine.served.ask import Ask, ChatPrompt
from proxy_inference_engine.served.model import INLINE_CHARS, ServedModel, Threads
from proxy_inference_engine.state_machine.demand import Demand, JsonSchema
from tests.polling import HANG_S
from tests.unit.served.scripted import ScriptedEngine, whole

LONG = INLINE_CHARS + 1


class Gate:
    """Work that lasts until it is let go, and counts how many are at it."""

    def __init__(self) -> None:
        self.num_begun = 0
        self._may_end = threading.Event()
        self._begun = threading.Condition()

    def __call__(self) -> str:
        with self._begun:
            self.num_begun += 1
            self._begun.notify_all()
        assert self._may_end.wait(HANG_S)
        return "done"

    def wait_begun(self, number: int) -> None:
        with self._begun:
            assert self._begun.wait_for(lambda: self.num_begun >= number, HANG_S)

    def open(self) -> None:
        self._may_end.set()


async def test_little_work_is_done_at_once_where_it_is_asked_for() -> None:
    threads = Threads(1)
    assert await threads.run(threading.get_ident, "anna", INLINE_CHARS) == threading.get_ident()
    assert await threads.run(threading.get_ident, "anna", LONG) != threading.get_ident()


async def test_one_holder_cannot_have_all_threads() -> None:
    """Eight waiting requests of one key filled the pool, and every long prompt of the others waited behind them."""
    threads, gate = Threads(6), Gate()
    greedy = [asyncio.ensure_future(threads.run(gate, "greedy", LONG)) for _ in range(20)]
    await asyncio.sleep(0)
    gate.wait_begun(2)
    assert await threads.run(lambda: "answered", "modest", LONG) == "answered"
    assert gate.num_begun == 2
    gate.open()
    assert await asyncio.gather(*greedy) == ["done"] * 20


@pytest.mark.parametrize("num_gone", [1, 6])
async def test_who_leaves_does_not_get_another_thread_for_it(num_gone: int) -> None:
    """The thread goes on: with each request that is given up one more would have been taken."""
    threads, gate = Threads(6), Gate()
    for _ in range(num_gone):
        left = asyncio.ensure_future(threads.run(gate, "greedy", LONG))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
    gate.wait_begun(1)
    assert await threads.run(lambda: "answered", "modest", LONG) == "answered"
    assert gate.num_begun <= 2
    gate.open()
    assert await threads.run(lambda: "after", "greedy", LONG) == "after"


async def test_errors_are_the_caller_s_and_give_the_share_back() -> None:
    threads = Threads(2)

    def fail() -> None:
        raise ValueError("no")

    for _ in range(10):
        with pytest.raises(ValueError, match="no"):
            await threads.run(fail, "anna", LONG)


async def test_a_format_that_is_known_waits_for_no_thread() -> None:
    """As many requests with one schema as a client has: each took longer to get into a thread than to be prepared."""
    engine, threads, gate = ScriptedEngine([whole("1")], [whole("2")], [whole("3")]), Threads(1), Gate()
    model = ServedModel.of(engine, Config(), threads=threads)

    def asked(schema_type: str) -> Ask:
        turn = Interaction.of(Role.USER, f"A number, number {len(engine.requests)}")
        return Ask("a", "t", ChatPrompt([turn]), demand=Demand(output=JsonSchema({"type": schema_type})))

    (await model.answer(asked("integer"))).cancel()
    held = asyncio.ensure_future(threads.run(gate, "other", LONG))
    await asyncio.sleep(0)
    gate.wait_begun(1)
    (await asyncio.wait_for(model.answer(asked("integer")), HANG_S)).cancel()
    assert len(engine.requests) == 2 and engine.requests[1].constraint is engine.requests[0].constraint
    new = asyncio.ensure_future(model.answer(asked("string")))
    await asyncio.sleep(0)
    assert len(engine.requests) == 2, "a grammar that is still to be compiled holds up nobody"
    gate.open()
    (await new).cancel()
    assert len(engine.requests) == 3 and await held == "done"
