"""What this process may use of the machine: cores and memory. Knows nothing of what they are used for."""

from pathlib import Path

import psutil


def available_cores(topology: Path = Path("/sys/devices/system/cpu"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Physical cores within the process's affinity and CPU quota: hyper-threads only slow a matrix product down."""
    cores = _own_cores(topology)
    return max(1, min(cores, _quota(cgroup) or cores))


def _own_cores(topology: Path) -> int:
    process = psutil.Process()
    if hasattr(process, "cpu_affinity"):  # where a process can be bound to some of them: not on macOS
        return len({_siblings(topology, cpu) for cpu in process.cpu_affinity()})
    return psutil.cpu_count(logical=False) or psutil.cpu_count() or 1


def _siblings(topology: Path, cpu: int) -> str:
    """The hyper-threads that share a core with `cpu`: the same text for each of them."""
    try:
        return (topology / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quota(cgroup: Path) -> int | None:
    """CPUs a container may use, rounded up; None without a limit."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return -(-int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return None


def available_memory(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that can be taken now without swapping, within the container's limit, which the system does not count."""
    free = psutil.virtual_memory().available
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        return max(0, min(free, limit - used))
    except (OSError, ValueError):
        return free
