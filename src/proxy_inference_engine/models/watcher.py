"""Whoever is shown what a start is busy with: a terminal, or nobody."""

import time
from collections.abc import Callable
from typing import Protocol

_MOMENT_S = 1.0


class Watcher(Protocol):
    def say(self, line: str) -> None:
        """One step that a person would wait for."""
        ...

    def show(self, num_bytes: int, total_bytes: int) -> None:
        """How far the step is. Called often; of a download the first call says what was there already."""
        ...


class Nobody:
    """A `Watcher` that shows nothing."""

    def say(self, line: str) -> None: ...

    def show(self, num_bytes: int, total_bytes: int) -> None: ...


def shares(watcher: Watcher, total_bytes: int) -> Callable[[float], None]:
    """Shows what comes as shares of one, once it has taken a moment: most starts are too short for it."""
    began = time.monotonic()

    def show(share: float) -> None:
        if time.monotonic() - began > _MOMENT_S:
            watcher.show(int(share * total_bytes), total_bytes)

    return show
