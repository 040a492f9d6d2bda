"""Keeps the event loop smooth: long work goes to a thread, short work is done at once."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_INLINE_CHARS = 2048


async def off_loop(work: Callable[[], T], num_chars: int) -> T:
    """`num_chars` is how much text the work goes through."""
    return work() if num_chars <= _INLINE_CHARS else await asyncio.to_thread(work)
