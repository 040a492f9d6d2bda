"""The KV memory of a lane, whatever kind it is, and how much memory the device has."""

from collections.abc import Sequence
from typing import Any, Protocol

import mlx.core as mx

from proxy_inference_engine.runners.base import Segment
from proxy_inference_engine.runners.mlx.rows import Batch, SlotRow


class LostSlot(Exception):
    """The device failed, and what the slot held went with it: the sequence has to be computed again."""


class Memory(Protocol):
    """The KV of one lane's slots, counted from its first. Work is only ordered here, except where a method says so."""

    @property
    def can_splice(self) -> bool: ...

    def forward_batch(self, batch: Batch) -> mx.array:
        """Logits of each row's last token, (rows, vocabulary)."""
        ...

    def forward(self, rows: Sequence[SlotRow]) -> list[mx.array]:
        """Logits of each row's last positions, (num_logits, vocabulary)."""
        ...

    def started(self) -> list[mx.array]:
        """Arrays that the last pass has to compute besides the logits."""
        ...

    def recover(self) -> None:
        """Go on after a failed pass: keep what can still be computed, so that the next pass does not fail over it."""
        ...

    def truncate(self, slot: int, num_tokens: int) -> None: ...

    def release(self, slot: int) -> None: ...

    def export(self, slot: int, start: int, end: int) -> Segment: ...

    def restore(self, slot: int, segments: Sequence[Any], num_tokens: int) -> None: ...


def leave_thread() -> None:
    """Call this last in a thread that computed: what MLX keeps for a thread would else be cleared after it, while
    the interpreter may be shutting down, which aborts the process."""
    mx.clear_streams()


def is_gpu() -> bool:
    return bool(mx.default_device().type == mx.DeviceType.gpu)


def free_bytes(host_bytes: int) -> int:
    """What the device has left; `host_bytes` is what the host has, which is all there is without a GPU."""
    info = mx.device_info()
    for key in ("max_recommended_working_set_size", "free_memory", "total_memory", "memory_size"):
        if is_gpu() and key in info:
            held = 0 if key == "free_memory" else mx.get_active_memory()
            return max(0, int(info[key]) - held)
    return host_bytes
