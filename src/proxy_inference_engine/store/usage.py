"""What each key has used, for as long as the store is kept. Numbers are added, so several servers may share it.

Each function runs inside a transaction of its caller.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass

from proxy_inference_engine.store.database import StoreConnection

_COUNTS = ("num_requests", "num_prompt_tokens", "num_cached_tokens", "num_tokens")


@dataclass(slots=True)
class KeyUsage:
    """Cached tokens are among those of prompts; tokens are those of answers."""

    num_requests: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_tokens: int = 0

    def __sub__(self, other: "KeyUsage") -> "KeyUsage":
        return KeyUsage(*(mine - its for mine, its in zip(astuple(self), astuple(other), strict=True)))


# Rows in one order for all, so that no two servers wait for each other.
def add_usage(connection: StoreConnection, usage: Mapping[str, KeyUsage]) -> None:
    sums = ", ".join(f"{name} = usage.{name} + excluded.{name}" for name in _COUNTS)
    connection.executemany(
        f"INSERT INTO usage (key, {', '.join(_COUNTS)}) VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET {sums}",
        [(key, *astuple(each)) for key, each in sorted(usage.items())],
    )


def read_usage(connection: StoreConnection) -> dict[str, KeyUsage]:
    rows = connection.execute(f"SELECT key, {', '.join(_COUNTS)} FROM usage ORDER BY key")
    return {key: KeyUsage(*counts) for key, *counts in rows}
