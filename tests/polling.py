"""Waiting for another thread or process: until something is so, and no longer than nobody would wait anyway."""

import asyncio
import time
from collections.abc import Callable

HANG_S = 60.0  # that mean a hang, however busy the machine is
_PAUSE_SECONDS = 0.002


def wait_until(is_true: Callable[[], object], seconds: float = HANG_S) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(_PAUSE_SECONDS)


async def until(is_true: Callable[[], object]) -> None:
    """The same in an event loop, which goes on meanwhile."""
    async with asyncio.timeout(HANG_S):
        while not is_true():
            await asyncio.sleep(_PAUSE_SECONDS)
